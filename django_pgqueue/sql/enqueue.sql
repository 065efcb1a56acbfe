-- The stable name for plain SQL, triggers and other languages. The worker that claims the job fills in policy
-- that is NULL from the task. Later releases add new arguments to `options`, because a second signature would
-- make every existing call ambiguous.
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
    unknown text := (SELECT min(key) FROM jsonb_object_keys(options) AS key WHERE key <> 'max_payload_bytes');
BEGIN
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: unknown option %', unknown
            USING ERRCODE = 'invalid_parameter_value', HINT = 'The only option is max_payload_bytes.';
    END IF;
    RETURN (pgqueue_enqueue_v1(
        task_path, args, kwargs, metadata, queue_name, priority, run_after, NULL, expires_at, NULL,
        max_attempts, timeout, on_lost, coalesce((options ->> 'max_payload_bytes')::integer, 1048576)
    )).id;
END $$;
