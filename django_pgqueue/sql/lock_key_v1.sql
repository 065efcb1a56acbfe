-- The key of an advisory lock. It contains the oid of the live leaf, so that two installations in two schemas of
-- one database share no locks. It has 64 bits, so that it does not collide with locks of other applications.
CREATE FUNCTION pgqueue_lock_key_v1(p_kind text, p_name text) RETURNS bigint
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT hashtextextended('pgqueue/' || 'pgqueue_job_live'::regclass::oid || '/' || p_kind || '/' || p_name, 0)
$$;
