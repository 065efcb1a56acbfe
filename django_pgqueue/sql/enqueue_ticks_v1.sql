-- Enqueue a job for each of these ticks, in this order, and note it in the tick and in its schedule. The caller holds
-- the locks of the schedules and has just written the ticks. The policy is that of the task, as the last process saw
-- it that could import the task; without one, the worker that claims the job fills it in.
--
-- live_jobs is kept for the overlap: the jobs that may still be live, or only the last one if they may overlap.
CREATE FUNCTION pgqueue_enqueue_ticks_v1(p_schedules text[], p_ticks timestamptz[]) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ids bigint[];
BEGIN
    SELECT (pgqueue_enqueue_many_v1(
        p_first => 1,
        p_task_paths => array_agg(call.task_path::text ORDER BY call.place),
        p_args => array_agg(call.args ORDER BY call.place),
        p_kwargs => array_agg(call.kwargs ORDER BY call.place),
        p_metadata => array_agg(coalesce(call.policy -> 'metadata', '{}') || jsonb_build_object(
            'schedule', call.name, 'tick', to_char(call.tick AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')
        ) || CASE WHEN call.by_hand THEN '{"by_hand": true}'::jsonb ELSE '{}' END ORDER BY call.place),
        p_queue_names => array_agg(
            coalesce(call.queue_name, call.policy ->> 'queue_name', 'default') ORDER BY call.place),
        p_priorities => array_agg(
            coalesce(call.priority, (call.policy ->> 'priority')::integer, 0) ORDER BY call.place),
        p_run_after => array_agg(NULL::timestamptz),
        p_delays => array_agg(
            CASE WHEN NOT call.by_hand THEN random() * date_part('epoch', call.jitter) END ORDER BY call.place),
        p_expires_after => array_agg(
            (call.policy ->> 'expires_after')::double precision ORDER BY call.place),
        p_max_attempts => array_agg((call.policy ->> 'max_attempts')::integer ORDER BY call.place),
        p_timeouts => array_agg((call.policy ->> 'timeout')::integer ORDER BY call.place),
        p_on_lost => array_agg(call.policy ->> 'on_lost' ORDER BY call.place),
        p_max_bytes => NULL,
        p_options => NULL
    )).ids INTO ids
    FROM (
        SELECT given.place, given.tick, schedule.name, schedule.task_path, schedule.args, schedule.kwargs,
            schedule.queue_name, schedule.priority, schedule.jitter, passed.outcome = 'manual' AS by_hand,
            CASE WHEN schedule.policy ->> 'task_path' = schedule.task_path THEN schedule.policy END AS policy
        FROM unnest(p_schedules, p_ticks) WITH ORDINALITY AS given (name, tick, place)
        JOIN pgqueue_schedule AS schedule ON schedule.name = given.name
        JOIN pgqueue_tick AS passed ON passed.schedule = given.name AND passed.tick = given.tick
    ) AS call;
    UPDATE pgqueue_tick AS passed SET job_id = given.job
    FROM unnest(p_schedules, p_ticks, ids) AS given (name, tick, job)
    WHERE passed.schedule = given.name AND passed.tick = given.tick;
    UPDATE pgqueue_schedule AS schedule SET live_jobs = CASE schedule.overlap
        WHEN 'allow' THEN ARRAY[newest.job]
        ELSE newest.jobs || ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (schedule.live_jobs)) END
    FROM (
        SELECT given.name, max(given.job) AS job, array_agg(given.job) AS jobs
        FROM unnest(p_schedules, ids) AS given (name, job) GROUP BY given.name
    ) AS newest
    WHERE schedule.name = newest.name;
    RETURN ids;
END $$;
