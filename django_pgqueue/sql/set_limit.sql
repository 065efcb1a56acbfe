-- The stable name for plain SQL: SELECT pgqueue_set_limit('shop.tasks.sync', 5), and for a rate
-- SELECT pgqueue_set_limit('crm', starts => 100, per => '1 minute', burst => 10).
CREATE FUNCTION pgqueue_set_limit(
    name text, running integer DEFAULT NULL, on_conflict text DEFAULT NULL,
    starts integer DEFAULT NULL, per interval DEFAULT NULL, burst integer DEFAULT NULL
) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT pgqueue_set_limit_v1(name, running, on_conflict, starts, per, burst)
$$;
