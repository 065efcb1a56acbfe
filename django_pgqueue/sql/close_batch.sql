-- The stable name for plain SQL: SELECT pgqueue_close_batch(5).
CREATE FUNCTION pgqueue_close_batch(id bigint) RETURNS boolean LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT pgqueue_close_batch_v1(id)
$$;
