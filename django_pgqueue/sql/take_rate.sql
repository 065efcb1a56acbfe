-- The stable name for plain SQL: SELECT pgqueue_take_rate('sms', 'acme').
CREATE FUNCTION pgqueue_take_rate(name text, key text DEFAULT '', count integer DEFAULT 1) RETURNS double precision
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_take_rate_v1(name, key, count) $$;
