-- Report how far a job is, from a worker in another language: SELECT pgqueue_progress(5, 40, 100, 'reading').
-- Returns whether the job runs; with a lease, whether it runs under this lease. Once a second is often enough.
CREATE FUNCTION pgqueue_progress(
    id bigint, done double precision, total double precision DEFAULT NULL, note text DEFAULT '',
    lease bigint DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    held bigint;
    problem text := CASE
        WHEN done IS NULL OR NOT done BETWEEN 0 AND 9007199254740992
            THEN format('done must be a number from 0 to 2^53, not %s', coalesce(done::text, 'NULL'))
        WHEN NOT total BETWEEN 0 AND 9007199254740992
            THEN format('total must be a number from 0 to 2^53, or NULL, not %s', total)
    END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: progress: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- This one waits for the row, which the function below would leave out.
    SELECT job.lease INTO held FROM pgqueue_job_live AS job
    WHERE job.id = $1 AND job.status = 'running' AND ($5 IS NULL OR job.lease = $5) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM _pgqueue_write_progress(
        ARRAY[id], ARRAY[held], ARRAY[NULL::text], ARRAY[done], ARRAY[total], ARRAY[coalesce(note, '')]);
    RETURN true;
END $$;

-- Write what running jobs report: how far they are (p_done; NULL: nothing new) and the step that has begun (p_steps;
-- NULL: nothing new). Returns the ids of the jobs that were written. Of the others, the lease was lost, or the row is
-- locked.
--
-- Race: the job may end, or recovery may take it away, at the same moment. Who comes second waits for the row of the
-- job, or, here, leaves the job out: a worker must not wait, and writes again in a second. If the job ends after this,
-- its end sees the mark 8, and the row that is inserted here, because its statement for that begins after the wait.
-- Race: the job reaches a sleep, or waits for an event, while its worker has an older step to write. Its row has the
-- name of that wait by then (_pgqueue_wait), which the event and the finish compare, so the name of a wait that is not
-- over stays. The rows are locked first, so that the UPDATE, a statement of its own, sees such a wait.
CREATE FUNCTION _pgqueue_write_progress(
    p_ids bigint[], p_leases bigint[], p_steps text[], p_done double precision[], p_totals double precision[],
    p_notes text[]
) RETURNS bigint[] LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    held bigint[];
    changed bigint[];  -- the jobs whose rows change
BEGIN
    SELECT array_agg(locked.id), array_agg(locked.id) FILTER (WHERE locked.changes) INTO held, changed FROM (
        SELECT job.id,
            given.done IS NOT NULL AND job.marks & 8 = 0 OR given.step <> job.current_step AS changes
        FROM unnest(p_ids, p_leases, p_steps, p_done) AS given (id, lease, step, done)
        JOIN pgqueue_job_live AS job ON job.id = given.id AND job.lease = given.lease
        WHERE job.id = ANY (p_ids)
        ORDER BY job.id FOR NO KEY UPDATE OF job SKIP LOCKED
    ) AS locked;
    IF held IS NULL THEN
        RETURN '{}';
    END IF;
    IF changed IS NOT NULL THEN
        UPDATE pgqueue_job_live AS job SET
            marks = CASE WHEN given.done IS NULL THEN job.marks ELSE job.marks | 8 END,
            current_step = CASE
                WHEN given.step IS NULL OR EXISTS (
                    SELECT FROM pgqueue_step AS wait
                    WHERE wait.job_id = job.id AND wait.name = job.current_step AND wait.finished_at IS NULL
                ) THEN job.current_step
                ELSE given.step END
        FROM unnest(p_ids, p_steps, p_done) AS given (id, step, done)
        WHERE job.id = ANY (changed) AND job.id = given.id;
    END IF;
    INSERT INTO pgqueue_progress AS shown (job_id, at, done, total, note)
    SELECT given.id, clock_timestamp(), given.done, given.total, left(given.note, 200)
    FROM unnest(p_ids, p_done, p_totals, p_notes) AS given (id, done, total, note)
    JOIN unnest(held) AS locked (id) ON locked.id = given.id
    WHERE given.done IS NOT NULL
    ON CONFLICT (job_id) DO UPDATE SET
        at = excluded.at, done = excluded.done, total = excluded.total, note = excluded.note;
    RETURN held;
END $$;

-- Ask what the task of a running job does now. Its worker writes the stack into pgqueue_stack, mostly within
-- milliseconds. Returns whether the job runs. Stacks that are a day old are deleted.
CREATE FUNCTION pgqueue_request_stack(job bigint) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    held bigint;
BEGIN
    SELECT running.lease INTO held FROM pgqueue_job_live AS running
    WHERE running.id = pgqueue_request_stack.job AND running.status = 'running';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM _pgqueue_forget_stacks();
    INSERT INTO pgqueue_stack AS asked (job_id, lease) VALUES (job, held)
    ON CONFLICT (job_id) DO UPDATE SET
        lease = excluded.lease, requested_at = excluded.requested_at, taken_at = NULL, at_end = false,
        lines = '';
    PERFORM pg_notify(_pgqueue_channel(), 'stack ' || job);
    RETURN true;
END $$;

-- Keep what the jobs of a worker did when its process ended.
CREATE FUNCTION _pgqueue_keep_stacks(p_worker bigint, p_ids bigint[], p_lines text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _pgqueue_forget_stacks();
    INSERT INTO pgqueue_stack AS kept (job_id, lease, taken_at, at_end, lines)
    SELECT job.id, job.lease, clock_timestamp(), true, given.lines
    FROM unnest(p_ids, p_lines) AS given (id, lines)
    JOIN pgqueue_job_live AS job ON job.id = given.id
    WHERE job.id = ANY (p_ids) AND job.status = 'running' AND job.worker = p_worker
    ORDER BY job.id
    ON CONFLICT (job_id) DO UPDATE SET
        lease = excluded.lease, requested_at = excluded.requested_at, taken_at = excluded.taken_at,
        at_end = true, lines = excluded.lines;
END $$;

-- Delete the stacks that are a day old.
--
-- Race: two who do this at once delete the same rows, each in its own order, and would wait for each other, so each
-- leaves out what the other one has locked.
CREATE FUNCTION _pgqueue_forget_stacks() RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
    DELETE FROM pgqueue_stack AS old WHERE old.job_id IN (
        SELECT stack.job_id FROM pgqueue_stack AS stack
        WHERE stack.requested_at < clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED)
$$;
