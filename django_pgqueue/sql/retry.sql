-- The stable name for plain SQL: SELECT pgqueue_retry(ARRAY[5]).
CREATE FUNCTION pgqueue_retry(ids bigint[], done boolean DEFAULT false) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_retry_v1(ids, done) $$;
