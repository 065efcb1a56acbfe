-- The stable name for plain SQL: SELECT pgqueue_take('sms', 'acme').
CREATE FUNCTION pgqueue_take(name text, key text DEFAULT '', count integer DEFAULT 1) RETURNS double precision
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_take_v1(name, key, count) $$;
