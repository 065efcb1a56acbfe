-- The stable name for plain SQL: SELECT pgqueue_set_limit('task', 'shop.tasks.sync', 5), and for a rate
-- SELECT pgqueue_set_limit('limit', 'crm', rate => 100, per => '1 minute', burst => 10).
CREATE FUNCTION pgqueue_set_limit(
    kind text, name text DEFAULT '', concurrency integer DEFAULT NULL, on_full text DEFAULT NULL,
    rate integer DEFAULT NULL, per interval DEFAULT NULL, burst integer DEFAULT NULL
) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT pgqueue_set_limit_v1(pgqueue_limit_name_v1(kind, name), concurrency, on_full, rate, per, burst)
$$;
