-- The key of an advisory lock. It holds the oid of the live leaf, so that two installations in two
-- schemas of one database share no lock, and 64 bits, so that other people's locks are not met.
CREATE FUNCTION pgqueue_lock_key_v1(p_kind text, p_name text) RETURNS bigint
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT hashtextextended('pgqueue/' || 'pgqueue_job_live'::regclass::oid || '/' || p_kind || '/' || p_name, 0)
$$;
