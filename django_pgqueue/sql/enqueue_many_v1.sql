-- Enqueue a chunk of jobs in one statement, and return their ids in the order of the arrays. The first invalid
-- job raises an error that names its place, before anything is inserted.
CREATE FUNCTION pgqueue_enqueue_many_v1(
    p_first integer, p_task_paths text[], p_args jsonb[], p_kwargs jsonb[], p_metadata jsonb[],
    p_queue_names text[], p_priorities integer[], p_run_after timestamptz[], p_delays double precision[],
    p_expires_after double precision[], p_max_attempts integer[], p_timeouts integer[], p_on_lost text[],
    p_max_bytes integer
) RETURNS bigint[] LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    bad record;
    now timestamptz := clock_timestamp();
    ids bigint[];
BEGIN
    SELECT checked.place, checked.problem INTO bad
    FROM (
        SELECT given.place, pgqueue_problem_v1(
            task_path, args, kwargs, metadata, queue_name, priority, run_after, NULL, max_attempts, timeout,
            on_lost, p_max_bytes
        ) AS problem
        FROM unnest(
            p_task_paths, p_args, p_kwargs, p_metadata, p_queue_names, p_priorities, p_run_after,
            p_max_attempts, p_timeouts, p_on_lost
        ) WITH ORDINALITY AS given (
            task_path, args, kwargs, metadata, queue_name, priority, run_after, max_attempts, timeout, on_lost,
            place
        )
    ) AS checked
    WHERE checked.problem IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'pgqueue: item %: %', p_first + bad.place - 1, bad.problem
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WITH given AS MATERIALIZED (
        SELECT nextval('pgqueue_job_id_seq') AS id, item.*
        FROM unnest(
            p_task_paths, p_args, p_kwargs, p_metadata, p_queue_names, p_priorities, p_run_after, p_delays,
            p_expires_after, p_max_attempts, p_timeouts, p_on_lost
        ) AS item (
            task_path, args, kwargs, metadata, queue_name, priority, run_after, delay, expires_after,
            max_attempts, timeout, on_lost
        )
    ), timed AS (
        SELECT given.*,
            greatest(coalesce(given.run_after, now + given.delay * interval '1 second'), now) AS due
        FROM given
    ), inserted AS (
        INSERT INTO pgqueue_job_live (
            id, task_path, args, kwargs, metadata, queue_name, priority, run_after, expires_at, enqueued_at,
            max_attempts, timeout, on_lost
        )
        SELECT timed.id, timed.task_path, timed.args, timed.kwargs, timed.metadata, timed.queue_name,
            timed.priority, timed.due, timed.due + timed.expires_after * interval '1 second', now,
            timed.max_attempts, timed.timeout, timed.on_lost
        FROM timed
    )
    SELECT array_agg(given.id) INTO ids FROM given;
    RETURN ids;
END $$;
