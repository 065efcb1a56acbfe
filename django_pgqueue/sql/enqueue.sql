-- The stable name for plain SQL, triggers and other languages. The worker that claims the job fills in policy
-- that is NULL from the task. Later releases add new arguments to `options`, because a second signature would
-- make every existing call ambiguous. With a unique key, current_setting('pgqueue.enqueue_outcome') says until the end
-- of the transaction what became of the call.
CREATE FUNCTION pgqueue_enqueue(
    task_path text,
    args jsonb DEFAULT '[]',
    kwargs jsonb DEFAULT '{}',
    queue_name text DEFAULT 'default',
    priority integer DEFAULT 0,
    run_after timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    timeout integer DEFAULT NULL,
    on_lost text DEFAULT NULL,
    metadata jsonb DEFAULT '{}',
    options jsonb DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    more jsonb := CASE WHEN jsonb_typeof(options) = 'object' THEN nullif(options - 'max_json_bytes', '{}')
        ELSE options END;  -- what is no object is refused below
    job record;
BEGIN
    IF options ->> 'max_json_bytes' !~ '^[0-9]{1,9}$' THEN
        RAISE EXCEPTION 'pgqueue: max_json_bytes % must be a whole number from 0 to 999999999',
            options -> 'max_json_bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT one.id, one.outcome INTO job FROM pgqueue_enqueue_v1(
        task_path, args, kwargs, metadata, queue_name, priority, run_after, NULL, expires_at, NULL,
        max_attempts, timeout, on_lost, coalesce((options ->> 'max_json_bytes')::integer, 1048576), more) AS one;
    IF more ->> 'on_conflict' = 'raise' AND job.outcome = 'existing' THEN
        RAISE EXCEPTION 'pgqueue: job % has the unique key %', job.id, quote_literal(more ->> 'unique_key')
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'pgqueue_job_unique';
    ELSIF more IS NOT NULL THEN
        PERFORM set_config('pgqueue.enqueue_outcome', job.outcome, true);
    END IF;
    RETURN job.id;
END $$;
