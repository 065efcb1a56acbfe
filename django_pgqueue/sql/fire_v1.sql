-- Turn due runs into jobs, and move their schedules on: all or nothing. The caller has read the schedules without
-- locks and has computed, for each, the runs that have passed, the next one, and the last one that has passed.
-- Returns how many schedules it has moved on.
--
-- Races: the definition or the state may have changed since it was read: an edit, a pause, another round. So a
-- schedule counts only if its row is still the version that was read, which is checked under its lock, with a
-- snapshot that is younger than the lock. The next round reads the others again. Rows that are locked, by an open
-- transaction that edits them, are left to the next round, too: nobody waits here for a schedule.
--
-- Race: an open transaction may hold the unique key of a run's job. The INSERT has to wait for it, but only for a
-- moment: the supervisor that calls this must send its heartbeats. It tries the others first, and this one later.
--
-- The unique constraint of pgqueue_schedule_run is the guarantee that a run becomes at most one job, whatever the clock, or
-- people who move next_run_at by hand, do.
CREATE FUNCTION pgqueue_fire_v1(
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
    SELECT array_agg(due.schedule ORDER BY due.run_at, due.schedule), array_agg(due.run_at ORDER BY due.run_at, due.schedule)
    INTO names, runs
    FROM (
        SELECT fresh.schedule, fresh.run_at FROM fresh WHERE fresh.outcome = 'enqueued'
        UNION ALL SELECT woken.schedule, woken.run_at FROM woken
    ) AS due;
    IF names IS NOT NULL THEN
        PERFORM pgqueue_enqueue_runs_v1(names, runs);
    END IF;
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
