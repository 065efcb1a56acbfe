-- The stable name for workers in other languages: SELECT * FROM pgqueue_heartbeat(77).
CREATE FUNCTION pgqueue_heartbeat(
    worker bigint, OUT registered boolean, OUT cancel_requested bigint[], OUT asked_to_end boolean
) LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT * FROM pgqueue_heartbeat_v1(worker) $$;
