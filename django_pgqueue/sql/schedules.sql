-- Turn due runs into jobs, and move their schedules on: all or nothing. The caller has read the schedules without
-- locks and has computed, for each, the runs that have passed, the next one, and the last one that has passed.
-- Returns how many schedules it has moved on.
--
-- Races: the definition or the state may have changed since it was read: an edit, a pause, another round, so a
-- schedule counts only if its row is still the version that was read, which is checked under its lock, with a
-- snapshot that is younger than the lock. The next round reads the others again. Rows that are locked, by an open
-- transaction that edits them, are left to the next round, too: no session waits here for a schedule.
--
-- Race: an open transaction may hold the unique key of a run's job. The INSERT has to wait for it, but only for a
-- moment: the supervisor that calls this must send its heartbeats. It tries the others first, and this one later.
--
-- The unique constraint of pgqueue_schedule_run is the guarantee that a run becomes at most one job, whatever the
-- clock, or users who move next_run_at, do.
CREATE FUNCTION _pgqueue_fire(
    p_names text[], p_versions text[], p_next timestamptz[], p_last timestamptz[],
    p_run_names text[], p_runs timestamptz[], p_missed boolean[],
    p_policies jsonb[]  -- the policies that the caller has computed anew; NULL: none
) RETURNS integer LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    mine text[];
    busy text[];
    names text[];
    runs timestamptz[];
BEGIN
    mine := ARRAY(
        SELECT schedule.name FROM pgqueue_schedule AS schedule WHERE schedule.name = ANY (p_names)
        ORDER BY schedule.name FOR NO KEY UPDATE SKIP LOCKED);
    mine := ARRAY(
        SELECT schedule.name FROM pgqueue_schedule AS schedule
        JOIN unnest(p_names, p_versions) AS given (name, version) ON given.name = schedule.name
        WHERE schedule.name = ANY (mine) AND schedule.xmin::text = given.version);
    IF p_policies IS NOT NULL THEN
        UPDATE pgqueue_schedule AS schedule SET policy = given.policy
        FROM unnest(p_names, p_policies) AS given (name, policy)
        WHERE schedule.name = given.name AND schedule.name = ANY (mine) AND given.policy IS NOT NULL;
    END IF;
    busy := ARRAY(
        SELECT schedule.name FROM pgqueue_schedule AS schedule
        WHERE schedule.name = ANY (mine) AND (schedule.overlap <> 'allow' OR schedule.waiting > 0)
            AND EXISTS (SELECT FROM pgqueue_job_live AS job WHERE job.id = ANY (schedule.live_jobs)));
    WITH passed AS (
        SELECT schedule.name, schedule.overlap, schedule.catch_up_limit, schedule.waiting, given.run_at, given.missed,
            schedule.name = ANY (busy) AS is_busy,
            row_number() OVER (PARTITION BY schedule.name, given.missed ORDER BY given.run_at) AS place
        FROM unnest(p_run_names, p_runs, p_missed) AS given (name, run_at, missed)
        JOIN pgqueue_schedule AS schedule ON schedule.name = given.name
        WHERE schedule.name = ANY (mine) AND (schedule.last_run_at IS NULL OR given.run_at > schedule.last_run_at)
    ), fresh AS (
        INSERT INTO pgqueue_schedule_run (schedule, run_at, outcome)
        SELECT passed.name, passed.run_at, CASE
            WHEN passed.missed THEN 'missed'
            WHEN passed.overlap = 'allow' THEN 'enqueued'
            WHEN passed.place = 1 AND NOT passed.is_busy AND passed.waiting = 0 THEN 'enqueued'
            WHEN passed.overlap = 'queue' AND passed.waiting + passed.place <= passed.catch_up_limit THEN 'waiting'
            ELSE 'skipped' END
        FROM passed ORDER BY passed.run_at, passed.name
        ON CONFLICT (schedule, run_at) DO NOTHING RETURNING schedule, run_at, outcome
    ), woken AS (
        UPDATE pgqueue_schedule_run AS waiting SET outcome = 'enqueued'
        FROM (
            SELECT line.schedule, min(line.run_at) AS run_at
            FROM pgqueue_schedule_run AS line JOIN pgqueue_schedule AS schedule ON schedule.name = line.schedule
            WHERE line.outcome = 'waiting' AND schedule.waiting > 0 AND line.schedule = ANY (mine)
                AND NOT line.schedule = ANY (busy)
            GROUP BY line.schedule
        ) AS head
        WHERE waiting.schedule = head.schedule AND waiting.run_at = head.run_at
        RETURNING waiting.schedule, waiting.run_at
    )
    SELECT array_agg(due.schedule ORDER BY due.run_at, due.schedule),
        array_agg(due.run_at ORDER BY due.run_at, due.schedule)
    INTO names, runs
    FROM (
        SELECT fresh.schedule, fresh.run_at FROM fresh WHERE fresh.outcome = 'enqueued'
        UNION ALL SELECT woken.schedule, woken.run_at FROM woken
    ) AS due;
    IF names IS NOT NULL THEN
        PERFORM _pgqueue_enqueue_runs(names, runs);
    END IF;
    -- A run that is skipped, or that waits, names the job that is in its way.
    UPDATE pgqueue_schedule_run AS line SET job_id = (
        SELECT min(job.id) FROM pgqueue_job_live AS job WHERE job.id = ANY (schedule.live_jobs))
    FROM unnest(p_run_names, p_runs) AS given (name, run_at)
    JOIN pgqueue_schedule AS schedule ON schedule.name = given.name
    WHERE line.schedule = given.name AND line.run_at = given.run_at AND line.schedule = ANY (mine)
        AND line.outcome IN ('skipped', 'waiting') AND line.job_id IS NULL;
    UPDATE pgqueue_schedule AS schedule SET
        next_run_at = given.next,
        last_run_at = greatest(schedule.last_run_at, given.last),
        owed = NULL,
        waiting = CASE WHEN schedule.overlap <> 'queue' AND schedule.waiting = 0 THEN 0 ELSE (
            SELECT count(*) FROM pgqueue_schedule_run AS line
            WHERE line.schedule = schedule.name AND line.outcome = 'waiting') END
    FROM unnest(p_names, p_next, p_last) AS given (name, next, last)
    WHERE schedule.name = given.name AND schedule.name = ANY (mine);
    RETURN cardinality(mine);
END $$;

-- Enqueue a job for each of these runs, in this order, and note it in the run and in its schedule. The caller holds
-- the locks of the schedules and has just written the runs. The policy is that of the task, as the last process saw
-- it that could import the task; without one, the worker that claims the job fills it in. The options of the policy,
-- its keys, belong to a call with certain arguments, and do not apply if a user has changed the arguments since.
--
-- A job whose unique key is taken is not inserted, or takes the place of the other one. Then the outcome of the run
-- says so, and its job is the other one. Returns the jobs and the outcomes, as _pgqueue_enqueue_many does.
--
-- live_jobs is kept for the overlap: the jobs that may still be live, or only the last one if they may overlap.
CREATE FUNCTION _pgqueue_enqueue_runs(
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
    SELECT (one.done).ids, (one.done).outcomes INTO ids, outcomes FROM (SELECT _pgqueue_enqueue_many(
        p_first => 1,
        p_task_paths => array_agg(call.task_path::text),
        p_args => array_agg(call.args),
        p_kwargs => array_agg(call.kwargs),
        p_metadata => array_agg(coalesce(call.policy -> 'metadata', '{}') || jsonb_build_object(
            'schedule', call.name, 'run_at', to_char(call.run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')
        ) || CASE WHEN call.by_hand THEN '{"by_hand": true}'::jsonb ELSE '{}' END),
        p_queue_names => array_agg(coalesce(call.queue_name, call.policy ->> 'queue_name', 'default')),
        p_priorities => array_agg(coalesce(call.priority, (call.policy ->> 'priority')::integer, 0)),
        p_run_after => array_agg(NULL::timestamptz),
        p_delays => array_agg(CASE WHEN NOT call.by_hand THEN random() * date_part('epoch', call.jitter) END),
        p_expires_after => array_agg((call.policy ->> 'expires_after')::double precision),
        p_max_attempts => array_agg((call.policy ->> 'max_attempts')::integer),
        p_timeouts => array_agg((call.policy ->> 'timeout')::integer),
        p_on_lost => array_agg(call.policy ->> 'on_lost'),
        p_max_bytes => NULL,
        p_options => CASE WHEN bool_or(call.options IS NOT NULL) THEN array_agg(call.options) END
    ) AS done
    FROM (
        SELECT given.run_at, schedule.name, schedule.task_path, schedule.args, schedule.kwargs,
            schedule.queue_name, schedule.priority, schedule.jitter, passed.outcome = 'manual' AS by_hand,
            CASE WHEN schedule.policy ->> 'task_path' = schedule.task_path THEN schedule.policy END AS policy,
            CASE WHEN schedule.policy ->> 'task_path' = schedule.task_path
                AND schedule.policy -> 'args' = schedule.args AND schedule.policy -> 'kwargs' = schedule.kwargs
                THEN nullif(schedule.policy -> 'options', 'null') END AS options
        FROM unnest(p_schedules, p_runs) WITH ORDINALITY AS given (name, run_at, place)
        JOIN pgqueue_schedule AS schedule ON schedule.name = given.name
        JOIN pgqueue_schedule_run AS passed ON passed.schedule = given.name AND passed.run_at = given.run_at
        ORDER BY given.place
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

-- Enqueue one job of a schedule now, whatever its timing says. Return its id and the outcome, as _pgqueue_enqueue
-- does: the id is that of another job, if that one has the unique key. The runs of the schedule stay as they are.
--
-- Race: a round may be firing the schedule at this moment. This waits for its lock, so that neither loses the job of
-- the other from live_jobs. The moment has microseconds, which a run never has, so it is never that of a run.
CREATE FUNCTION _pgqueue_enqueue_schedule(p_name text, OUT id bigint, OUT outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    moment timestamptz;
BEGIN
    PERFORM FROM pgqueue_schedule AS schedule WHERE schedule.name = p_name FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: there is no schedule %', quote_literal(p_name)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    moment := greatest(clock_timestamp(), date_trunc('second', clock_timestamp()) + interval '1 microsecond');
    INSERT INTO pgqueue_schedule_run (schedule, run_at, outcome) VALUES (p_name, moment, 'manual');
    SELECT done.ids[1], coalesce(done.outcomes[1], 'created') INTO id, outcome
    FROM _pgqueue_enqueue_runs(ARRAY[p_name], ARRAY[moment]) AS done;
END $$;

-- Whoever changes the timing of a schedule (code, settings, the admin, SQL), the next round computes its next run
-- anew: the first one that is later than the change and than the last run. This is a trigger because it must know
-- the row as it is under the lock, not as the writer has read it.
--
-- Runs that are due at the moment of the change, and that no round has fired yet, are not lost: the old timing is
-- noted in owed, with the time in which it was true, and the next round computes its runs, too. After a pause, or
-- after a schedule came back, nothing is caught up.
--
-- Race: a round may be firing the schedule at this moment. The UPDATE waits for it before this is called, so OLD is the
-- row that the round has left, and the clock is read after that.
CREATE FUNCTION _pgqueue_schedule_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.since := coalesce(NEW.since, clock_timestamp());
    ELSIF OLD.paused_at IS NOT NULL OR OLD.retired_at IS NOT NULL THEN
        IF (NEW.paused_at IS NULL AND NEW.retired_at IS NULL)
            OR (OLD.cron, OLD.every, OLD.timezone) IS DISTINCT FROM (NEW.cron, NEW.every, NEW.timezone)
        THEN
            NEW.since := clock_timestamp();
            NEW.next_run_at := NULL;
            NEW.owed := NULL;
        END IF;
    ELSIF (OLD.cron, OLD.every, OLD.timezone) IS DISTINCT FROM (NEW.cron, NEW.every, NEW.timezone) THEN
        NEW.since := clock_timestamp();
        IF OLD.next_run_at > NEW.since THEN
            NEW.next_run_at := NULL;  -- nothing is owed
        ELSE
            NEW.next_run_at := OLD.next_run_at;
            NEW.owed := coalesce(OLD.owed, '[]') || jsonb_build_array(jsonb_build_object(
                'cron', OLD.cron,
                'every', (extract(epoch FROM OLD.every) * 1000000)::bigint,
                'timezone', OLD.timezone,
                'since', (extract(epoch FROM OLD.since) * 1000000)::bigint,
                'until', (extract(epoch FROM NEW.since) * 1000000)::bigint));
        END IF;
    END IF;
    IF NEW.paused_at IS NULL AND NEW.retired_at IS NULL AND (TG_OP = 'INSERT' OR NEW.since IS DISTINCT FROM OLD.since)
        AND current_setting('pgqueue.notify', true) IS DISTINCT FROM 'off'
    THEN
        PERFORM pg_notify(_pgqueue_channel() || '_schedules', '');  -- the supervisors look at once
    END IF;
    RETURN NEW;
END $$;
