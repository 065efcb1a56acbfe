-- The stable name for plain SQL: SELECT pgqueue_run_now(ARRAY[5]).
CREATE FUNCTION pgqueue_run_now(ids bigint[]) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_run_now_v1(ids) $$;
