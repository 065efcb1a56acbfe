-- The stable name for plain SQL: SELECT pgqueue_signal(5, 'approved', '{"by": "ann"}').
CREATE FUNCTION pgqueue_signal(job_id bigint, name text, value jsonb DEFAULT NULL) RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_signal_v1(job_id, name, value) $$;
