-- The stable name for plain SQL: SELECT pgqueue_cancel(5), or several ids.
CREATE FUNCTION pgqueue_cancel(VARIADIC ids bigint[]) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_cancel_v1(ids) $$;
