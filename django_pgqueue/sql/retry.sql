-- The stable name for plain SQL: SELECT pgqueue_retry(5), or several ids.
CREATE FUNCTION pgqueue_retry(VARIADIC ids bigint[]) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_retry_v1(ids) $$;
