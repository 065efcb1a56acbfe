-- The stable name for plain SQL: SELECT pgqueue_drain_worker(77). One worker in each transaction (drain_worker_v1.sql).
CREATE FUNCTION pgqueue_drain_worker(worker bigint, replace boolean DEFAULT true) RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_drain_worker_v1(worker, replace) $$;
