-- The stable name for workers in other languages: SELECT pgqueue_register_worker('app-1', '{mail}').
CREATE FUNCTION pgqueue_register_worker(
    host text, queues text[] DEFAULT '{}', slots integer DEFAULT 1, pid integer DEFAULT NULL, version text DEFAULT ''
) RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT pgqueue_register_worker_v1(host, queues, slots, pid, version)
$$;
