-- Change the priority, the time or the queue of jobs that wait; NULL leaves a value as it is. delay counts from
-- now, instead of run_after. Running jobs and finished jobs do not change. Returns the ids of the jobs that changed.
--
-- Workers skip jobs that are below their marks (worker/producer/ranges.py). A due job that moves to another queue or
-- priority would be below the marks there if it kept its time, so it becomes due now. A blocked job is in no range, and
-- keeps its time for the moment when it is released. But a job in the wait queue of its limit key leaves the line if it
-- gets a later time, and goes to that of the new queue, so it is claimable then, and passes the gate again. Whoever
-- stood behind it may have waited for it alone, so the lines of the keys are released. Race: a job may be claimed or
-- cancelled between the statements, so the rows are locked first, in the order of id. The time is read when they are
-- locked: it would otherwise be as old as the wait for the locks.
CREATE FUNCTION pgqueue_edit(
    ids bigint[],
    priority integer DEFAULT NULL,
    run_after timestamptz DEFAULT NULL,
    queue_name text DEFAULT NULL, delay interval DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql SET search_path FROM CURRENT
SET standard_conforming_strings = on AS $$
#variable_conflict use_column
DECLARE
    problem text := coalesce(
        _pgqueue_problem(
            'a.task', '[]', '{}', '{}', coalesce(pgqueue_edit.queue_name, 'default'),
            coalesce(pgqueue_edit.priority, 0), pgqueue_edit.run_after, NULL, NULL, NULL, NULL, NULL),
        CASE
            WHEN num_nulls(pgqueue_edit.priority, pgqueue_edit.run_after, delay, pgqueue_edit.queue_name) = 4
                THEN 'edit: give a priority, run_after or queue_name'
            WHEN num_nonnulls(pgqueue_edit.run_after, delay) = 2
                THEN 'edit: give run_after or a delay, not both'
            WHEN NOT extract(epoch FROM delay) BETWEEN 0 AND 3155760000
                THEN format('edit: the delay must be from 0 to 100 years, not %s', delay)
        END);
    now timestamptz;
    due timestamptz;
    edited bigint[];
    keys text[];
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (ids) ORDER BY job.id FOR UPDATE;
    now := clock_timestamp();
    due := CASE WHEN num_nulls(pgqueue_edit.run_after, delay) < 2
        THEN greatest(coalesce(pgqueue_edit.run_after, now + delay), now) END;
    WITH changed AS (
        UPDATE pgqueue_job_live AS job SET
            priority = edit.priority, queue_name = edit.queue_name, run_after = edit.run_after,
            status = CASE
                WHEN NOT edit.moves THEN job.status WHEN job.attempts > 0 THEN 'retry' ELSE 'pending' END,
            wait_position = CASE WHEN edit.run_after <= now OR edit.run_after = job.run_after
                THEN job.wait_position END,
            waiting_reason = CASE
                WHEN NOT edit.moves AND (job.status = 'blocked' OR job.run_after = edit.run_after)
                THEN job.waiting_reason ELSE '' END
        FROM (
            SELECT live.id, place.priority, place.queue_name, timed.moves,
                CASE WHEN timed.moves THEN greatest(timed.run_after, now) ELSE timed.run_after END AS run_after
            FROM pgqueue_job_live AS live
            CROSS JOIN LATERAL (
                SELECT coalesce(pgqueue_edit.priority, live.priority) AS priority,
                    coalesce(pgqueue_edit.queue_name, live.queue_name) AS queue_name
            ) AS place
            CROSS JOIN LATERAL (
                SELECT CASE
                    WHEN due > now OR due IS NOT NULL AND live.run_after > now THEN due
                    WHEN live.status <> 'blocked'
                        AND (live.priority, live.queue_name) <> (place.priority, place.queue_name)
                        THEN greatest(live.run_after, now)
                    ELSE live.run_after
                END AS run_after,
                live.status = 'blocked' AND live.wait_position IS NOT NULL
                    AND (live.queue_name <> place.queue_name OR due > now) IS TRUE AS moves
            ) AS timed
            WHERE live.id = ANY (ids) AND live.status IN ('pending', 'retry', 'blocked')
        ) AS edit
        WHERE job.id = ANY (ids) AND job.id = edit.id
            AND (job.priority, job.queue_name, job.run_after)
                IS DISTINCT FROM (edit.priority, edit.queue_name, edit.run_after)
        RETURNING job.id, job.limit_key
    )
    SELECT coalesce(array_agg(changed.id), '{}'),
        array_agg(changed.limit_key) FILTER (WHERE changed.limit_key IS NOT NULL)
    INTO edited, keys FROM changed;
    IF keys IS NOT NULL THEN
        PERFORM _pgqueue_release(keys);
    END IF;
    RETURN edited;
END $$;

-- Let running jobs run longer: until duration from now, if that is later than their deadline. Returns the ids of those
-- that run. lease: only a job with this lease, for one that extends itself. A job without a deadline does not get one.
-- The worker reads the deadline before it acts on it. Race: the worker may just have acted. Then the extension is too
-- late, whatever the row says.
CREATE FUNCTION pgqueue_extend(ids bigint[], duration interval, lease bigint DEFAULT NULL) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    extended bigint[];
BEGIN
    IF duration IS NULL OR NOT extract(epoch FROM duration) BETWEEN 0 AND 3155760000 THEN
        RAISE EXCEPTION 'pgqueue: extend: the duration must be from 0 to 100 years, not %',
            coalesce(duration::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Not a stronger lock than an UPDATE takes: a task may hold its row FOR KEY SHARE while it writes data that
    -- only the holder of the lease may write, and extend itself in the meantime.
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (ids) ORDER BY job.id FOR NO KEY UPDATE;
    WITH changed AS (
        UPDATE pgqueue_job_live AS job SET
            deadline = CASE WHEN job.deadline IS NOT NULL
                THEN greatest(job.deadline, clock_timestamp() + pgqueue_extend.duration) END
        WHERE job.id = ANY (ids) AND job.status = 'running'
            AND (pgqueue_extend.lease IS NULL OR job.lease = pgqueue_extend.lease)
        RETURNING job.id
    )
    SELECT coalesce(array_agg(changed.id), '{}') INTO extended FROM changed;
    RETURN extended;
END $$;
