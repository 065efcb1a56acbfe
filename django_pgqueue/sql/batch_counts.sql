-- The stable name for plain SQL: SELECT * FROM pgqueue_batch_counts(5).
CREATE FUNCTION pgqueue_batch_counts(
    id bigint, OUT added bigint, OUT live bigint, OUT done bigint, OUT failed bigint, OUT cancelled bigint
) RETURNS SETOF record LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT * FROM pgqueue_batch_counts_v1(id) $$;
