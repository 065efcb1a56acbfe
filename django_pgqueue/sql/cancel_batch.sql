-- The stable name for plain SQL: SELECT pgqueue_cancel_batch(5).
CREATE FUNCTION pgqueue_cancel_batch(id bigint) RETURNS integer LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT pgqueue_cancel_batch_v1(id)
$$;
