-- The stable name for plain SQL: SELECT pgqueue_reset_limit('queue', 'mail').
CREATE FUNCTION pgqueue_reset_limit(kind text, name text DEFAULT '') RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT pgqueue_reset_limit_v1(pgqueue_limit_name_v1(kind, name))
$$;
