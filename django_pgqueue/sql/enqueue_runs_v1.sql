-- Enqueue a job for each of these runs, in this order, and note it in the run and in its schedule. The caller holds
-- the locks of the schedules and has just written the runs. The policy is that of the task, as the last process saw
-- it that could import the task; without one, the worker that claims the job fills it in. The options of the policy,
-- its keys, are those of a call with certain arguments, and do not apply if a user has changed the arguments since.
--
-- A job whose unique key is taken is not inserted, or takes the place of the other one. Then the outcome of the run
-- says so, and its job is the other one. Returns the jobs and the outcomes, as pgqueue_enqueue_many_v1 does.
--
-- live_jobs is kept for the overlap: the jobs that may still be live, or only the last one if they may overlap.
CREATE FUNCTION pgqueue_enqueue_runs_v1(
    p_schedules text[], p_runs timestamptz[], OUT ids bigint[], OUT outcomes text[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text;
BEGIN
    SELECT schedule.policy ->> 'problem' INTO problem FROM pgqueue_schedule AS schedule
    WHERE schedule.name = ANY (p_schedules) AND schedule.policy ? 'problem'
        AND schedule.policy ->> 'task_path' = schedule.task_path
        AND schedule.policy -> 'args' = schedule.args AND schedule.policy -> 'kwargs' = schedule.kwargs
    ORDER BY schedule.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT (one.done).ids, (one.done).outcomes INTO ids, outcomes FROM (SELECT pgqueue_enqueue_many_v1(
        p_first => 1,
        p_task_paths => array_agg(call.task_path::text ORDER BY call.place),
        p_args => array_agg(call.args ORDER BY call.place),
        p_kwargs => array_agg(call.kwargs ORDER BY call.place),
        p_metadata => array_agg(coalesce(call.policy -> 'metadata', '{}') || jsonb_build_object(
            'schedule', call.name, 'run_at', to_char(call.run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')
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
        p_options => CASE WHEN bool_or(call.options IS NOT NULL)
            THEN array_agg(call.options ORDER BY call.place) END
    ) AS done
    FROM (
        SELECT given.place, given.run_at, schedule.name, schedule.task_path, schedule.args, schedule.kwargs,
            schedule.queue_name, schedule.priority, schedule.jitter, passed.outcome = 'manual' AS by_hand,
            CASE WHEN schedule.policy ->> 'task_path' = schedule.task_path THEN schedule.policy END AS policy,
            CASE WHEN schedule.policy ->> 'task_path' = schedule.task_path
                AND schedule.policy -> 'args' = schedule.args AND schedule.policy -> 'kwargs' = schedule.kwargs
                THEN nullif(schedule.policy -> 'options', 'null') END AS options
        FROM unnest(p_schedules, p_runs) WITH ORDINALITY AS given (name, run_at, place)
        JOIN pgqueue_schedule AS schedule ON schedule.name = given.name
        JOIN pgqueue_schedule_run AS passed ON passed.schedule = given.name AND passed.run_at = given.run_at
    ) AS call) AS one;
    UPDATE pgqueue_schedule_run AS passed SET job_id = given.job,
        outcome = coalesce(nullif(given.came_of_it, 'created'), passed.outcome)
    FROM unnest(p_schedules, p_runs, ids, outcomes) AS given (name, run_at, job, came_of_it)
    WHERE passed.schedule = given.name AND passed.run_at = given.run_at;
    UPDATE pgqueue_schedule AS schedule SET live_jobs = CASE schedule.overlap
        WHEN 'allow' THEN ARRAY[newest.job]
        ELSE newest.jobs || ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (schedule.live_jobs)) END
    FROM (
        SELECT given.name, max(given.job) AS job, array_agg(given.job) AS jobs
        FROM unnest(p_schedules, ids, outcomes) AS given (name, job, came_of_it)
        WHERE given.came_of_it IS DISTINCT FROM 'existing' GROUP BY given.name
    ) AS newest
    WHERE schedule.name = newest.name;
END $$;
