-- The stable name for plain SQL, triggers and other languages. What is NULL comes from pgqueue_task; for a task that is not
-- there, the worker that claims the job fills it in. Later releases add new arguments to `options`, because a second
-- signature would make every existing call ambiguous. With a unique key, current_setting('pgqueue.enqueue_outcome') says
-- until the end of the transaction what became of the call. Python has the policy of its tasks, and calls
-- pgqueue_enqueue_v1.
CREATE FUNCTION pgqueue_enqueue(
    task_path text,
    args jsonb DEFAULT '[]',
    kwargs jsonb DEFAULT '{}',
    queue_name text DEFAULT NULL,
    priority integer DEFAULT NULL,
    run_after timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    timeout integer DEFAULT NULL,
    on_lost text DEFAULT NULL,
    metadata jsonb DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    declared record;
    more jsonb;
    job record;
BEGIN
    IF options ->> 'max_json_bytes' !~ '^[0-9]{1,9}$' THEN
        RAISE EXCEPTION 'pgqueue: max_json_bytes % must be a whole number from 0 to 999999999',
            options -> 'max_json_bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO declared FROM pgqueue_policy_v1(task_path, options);
    more := CASE WHEN jsonb_typeof(declared.options) = 'object' THEN nullif(declared.options - 'max_json_bytes', '{}')
        ELSE declared.options END;  -- what is no object is refused below
    SELECT one.id, one.outcome INTO job FROM pgqueue_enqueue_v1(
        task_path, args, kwargs, coalesce(metadata, declared.metadata), coalesce(queue_name, declared.queue_name),
        coalesce(priority, declared.priority), run_after, NULL, expires_at, declared.expires_after,
        coalesce(max_attempts, declared.max_attempts), coalesce(timeout, declared.timeout),
        coalesce(on_lost, declared.on_lost), coalesce((options ->> 'max_json_bytes')::integer, 1048576), more) AS one;
    IF more ->> 'on_conflict' = 'raise' AND job.outcome = 'existing' THEN
        RAISE EXCEPTION 'pgqueue: job % has the unique key %', job.id, quote_literal(more ->> 'unique_key')
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'pgqueue_job_unique';
    ELSIF more IS NOT NULL THEN
        PERFORM set_config('pgqueue.enqueue_outcome', job.outcome, true);
    END IF;
    RETURN job.id;
END $$;
