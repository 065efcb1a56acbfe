-- The stable name for plain SQL: SELECT pgqueue_drain(77, 'stop'). One worker in each transaction (drain_v1.sql).
CREATE FUNCTION pgqueue_drain(worker bigint, how text DEFAULT 'replace') RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_drain_v1(worker, how) $$;
