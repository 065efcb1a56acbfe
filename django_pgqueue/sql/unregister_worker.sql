-- The stable name for workers in other languages: SELECT pgqueue_unregister_worker(77).
CREATE FUNCTION pgqueue_unregister_worker(worker bigint) RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_unregister_worker_v1(worker) $$;
