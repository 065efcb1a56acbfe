-- The stable name for plain SQL: SELECT pgqueue_retry_batch(5).
CREATE FUNCTION pgqueue_retry_batch(id bigint) RETURNS integer LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT pgqueue_retry_batch_v1(id)
$$;
