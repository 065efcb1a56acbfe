-- The stable name for plain SQL: SELECT pgqueue_send_event(5, 'approved', '{"by": "ann"}').
CREATE FUNCTION pgqueue_send_event(job_id bigint, name text, value jsonb DEFAULT NULL) RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_send_event_v1(job_id, name, value) $$;
