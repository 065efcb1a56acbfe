-- The stable name for plain SQL: SELECT pgqueue_set_limit('shop.tasks.sync', 5).
CREATE FUNCTION pgqueue_set_limit(name text, running integer, on_conflict text DEFAULT NULL) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_set_limit_v1(name, running, on_conflict) $$;
