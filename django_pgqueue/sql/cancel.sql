-- The stable name for plain SQL: SELECT pgqueue_cancel(ARRAY[5]).
CREATE FUNCTION pgqueue_cancel(ids bigint[]) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_cancel_v1(ids) $$;
