-- Insert the jobs of payloads whose task has a limit key or a group in a column: p_rows contains for each the id,
-- the value of the key, and the group. As at enqueue, a value of NULL means that the job is under no limit, or in no
-- group, and an empty group is refused. The columns are of types whose text is the same in Python (payloads/columns.py).
CREATE FUNCTION pgqueue_insert_keyed_payloads_v1(
    p_kind pgqueue_task, p_task_path text, p_now timestamptz, p_rows jsonb[]
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text;
BEGIN
    SELECT CASE WHEN keyed.group_key = '' THEN format('the group of job %s is empty', keyed.id)
        ELSE pgqueue_key_problem_v1(keyed.limit_key) END
    INTO problem
    FROM (
        SELECT given ->> 0 AS id, given ->> 2 AS group_key,
            CASE WHEN p_kind.limit_column IS NOT NULL THEN p_kind.limit_name || '/' || (given ->> 1) END AS limit_key
        FROM unnest(p_rows) AS given
    ) AS keyed
    WHERE keyed.group_key = '' OR pgqueue_key_problem_v1(keyed.limit_key) IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_job_live (
        id, task_path, queue_name, priority, run_after, enqueued_at, expires_at, max_attempts, timeout, on_lost, metadata,
        limit_key, wait_position, group_key)
    SELECT keyed.id, p_task_path, p_kind.queue_name, p_kind.priority, p_now, p_now,
        p_now + p_kind.expires_after * interval '1 second', p_kind.max_attempts, p_kind.timeout, p_kind.on_lost,
        p_kind.metadata, keyed.limit_key, CASE WHEN keyed.limit_key IS NOT NULL THEN keyed.id END, keyed.group_key
    FROM (
        SELECT (given ->> 0)::bigint AS id, given ->> 2 AS group_key,
            CASE WHEN p_kind.limit_column IS NULL THEN p_kind.limit_name
                ELSE p_kind.limit_name || '/' || (given ->> 1) END AS limit_key
        FROM unnest(p_rows) AS given
    ) AS keyed;
END $$;
