-- The stable name for plain SQL: SELECT pgqueue_open_batch('import').
CREATE FUNCTION pgqueue_open_batch(name text DEFAULT '') RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT pgqueue_open_batch_v1(name)
$$;
