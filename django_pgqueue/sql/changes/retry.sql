-- Run jobs again, now, with a new budget of attempts. Finished jobs come back from history with their id, attempts and
-- errors, done ones only with "done"; waiting jobs become due. A job whose task is paused stays blocked until
-- the pause ends. Running jobs do not change, and neither do jobs that wait for others: their order is what they
-- were enqueued for. A job that was cancelled while it waited for others waits again for the ones that are live.
-- Returns the ids of the jobs that changed. A SELECT that waits for another retry, or for the TRUNCATE of the shelf,
-- finds nothing afterwards, which is correct.
--
-- A job whose unique key is taken stays in history, and so does the second of two with the same key. Race: a twin is
-- enqueued at the same time. The INSERT waits for it, in the order of the keys, and a conflict with it leaves the job.
--
-- A job with a limit key joins the wait queue of its key at the end.
CREATE FUNCTION pgqueue_retry(ids bigint[], done boolean DEFAULT false) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    hurried bigint[] := _pgqueue_hurry(ids, true);
    unfolded record;
BEGIN
    WITH gone AS MATERIALIZED (
        SELECT job.* FROM pgqueue_job AS job
        WHERE job.id = ANY (ids) AND job.shelf <> 0 AND (done OR job.status <> 'done')
        ORDER BY job.id FOR UPDATE
    ), back AS (
        INSERT INTO pgqueue_job_live (
            /*unchanged*/, status, run_after, attempts, forgiven_attempts, marks, current_step, started_at,
            last_attempted_at, errors, error_fingerprint, wait_position, logs
        )
        SELECT /*gone.unchanged*/, 'pending', clock_timestamp(), gone.attempts, gone.attempts,
            CASE WHEN gone.status = 'done' THEN gone.marks & ~1 ELSE gone.marks END,
            CASE WHEN gone.status = 'done' THEN '' ELSE gone.current_step END,
            gone.started_at, gone.last_attempted_at, gone.errors, gone.error_fingerprint,
            CASE WHEN gone.limit_key IS NOT NULL THEN nextval('pgqueue_job_id_seq') END, gone.logs
        FROM gone ORDER BY gone.unique_key COLLATE "C" NULLS FIRST, gone.id
        ON CONFLICT DO NOTHING
        RETURNING id
    ), deleted AS (
        -- By an array: a join would read whole leaves where nothing has analyzed the table above them.
        DELETE FROM pgqueue_job AS job WHERE job.id = ANY (ARRAY(SELECT back.id FROM back)) AND job.shelf <> 0
    )
    SELECT array_agg(back.id) FILTER (WHERE gone.status <> 'done' AND gone.steps IS NOT NULL) AS ids,
        array_agg(gone.steps) FILTER (WHERE gone.status <> 'done' AND gone.steps IS NOT NULL) AS steps,
        array_agg(back.id) AS back, array_agg(back.id) FILTER (WHERE gone.parents IS NOT NULL) AS children,
        array_agg(ROW(gone.id, gone.status, gone.marks, gone.batch)::pgqueue_ended)
            FILTER (WHERE gone.marks & 4 <> 0) AS members
    INTO unfolded FROM back JOIN gone ON gone.id = back.id;
    IF unfolded.ids IS NOT NULL THEN
        -- They go on at the step that failed. A wait that ended without its event begins again. A done job has no
        -- results of its steps, and starts from the beginning.
        INSERT INTO pgqueue_step (job_id, name, kind, attempt, seconds, wake_at, finished_at, inputs, result)
        SELECT back.id, step.name, step.kind, step.attempt, step.seconds, step.wake_at, step.finished_at, step.inputs,
            nullif(step.result, 'null')
        FROM unnest(unfolded.ids, unfolded.steps) AS back (id, steps)
        CROSS JOIN LATERAL jsonb_to_recordset(back.steps) AS step (
            name text, kind text, attempt integer, seconds double precision, wake_at timestamptz,
            finished_at timestamptz, inputs bigint, result jsonb)
        WHERE step.kind <> 'timeout';
    END IF;
    IF unfolded.children IS NOT NULL THEN
        -- Block the jobs that still wait for some of their parents. Race: such a parent ends at this moment. It deletes
        -- the edge, and this waits for its commit. If this is first, the end of the parent waits for the lock of the
        -- edge, and then sees the job.
        PERFORM FROM pgqueue_edge AS edge WHERE edge.child_id = ANY (unfolded.children)
        ORDER BY edge.parent_id, edge.child_id FOR KEY SHARE;
        UPDATE pgqueue_job_live AS job SET status = 'blocked', wait_position = NULL,
            waiting_reason = _pgqueue_wait_reason(waits.parents)
        FROM (
            SELECT edge.child_id, array_agg(edge.parent_id) AS parents FROM pgqueue_edge AS edge
            WHERE edge.child_id = ANY (unfolded.children) GROUP BY edge.child_id
        ) AS waits
        WHERE job.id = waits.child_id AND job.status IN ('pending', 'retry');
    END IF;
    IF unfolded.members IS NOT NULL THEN
        PERFORM _pgqueue_reopen(unfolded.members);
    END IF;
    -- Race: something was enqueued after a failed job while the statement above waited for its row (_pgqueue_attach).
    UPDATE pgqueue_job_live AS job SET marks = job.marks | 2
    WHERE job.id = ANY (unfolded.back) AND job.marks & 2 = 0
        AND EXISTS (SELECT FROM pgqueue_edge AS edge WHERE edge.parent_id = job.id);
    RETURN hurried || unfolded.back;
END $$;

-- Run jobs now that wait for a later time. Their budget of attempts does not change. A job whose task is paused runs
-- when the pause ends. Returns the ids of the jobs that changed.
CREATE FUNCTION pgqueue_run_now(ids bigint[]) RETURNS bigint[]
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT _pgqueue_hurry(ids, false)
$$;

-- Lock live jobs, and make the ones due that wait for a time or for the end of a pause. With p_afresh, also due
-- ones, and all of them with a new budget of attempts. Jobs that sleep in a step go on: their sleep ends. Waits for
-- an event are not. Returns the ids of the jobs that changed.
CREATE FUNCTION _pgqueue_hurry(p_ids bigint[], p_afresh boolean) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    hurried bigint[];
    slept bigint[];
BEGIN
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) ORDER BY job.id FOR UPDATE;
    WITH waiting AS (
        UPDATE pgqueue_job_live AS job SET
            run_after = clock_timestamp(),
            forgiven_attempts = CASE WHEN p_afresh THEN job.attempts ELSE job.forgiven_attempts END,
            crash_count = CASE WHEN p_afresh THEN 0 ELSE job.crash_count END,
            lost_in_a_row = CASE WHEN p_afresh THEN 0 ELSE job.lost_in_a_row END,
            expires_at = CASE WHEN NOT p_afresh THEN job.expires_at END,
            waiting_reason = CASE WHEN job.status = 'blocked' THEN job.waiting_reason ELSE '' END,
            wait_position = CASE WHEN job.limit_key IS NOT NULL AND job.status <> 'blocked'
                THEN coalesce(job.wait_position, nextval('pgqueue_job_id_seq')) END
        WHERE job.id = ANY (p_ids) AND (p_afresh OR job.run_after > clock_timestamp()) AND (
            job.status IN ('pending', 'retry')
            OR job.status = 'blocked' AND starts_with(job.waiting_reason, 'paused'))
        RETURNING job.id, job.marks
    )
    SELECT coalesce(array_agg(waiting.id), '{}'), array_agg(waiting.id) FILTER (WHERE waiting.marks & 1 <> 0)
    INTO hurried, slept FROM waiting;
    IF slept IS NOT NULL THEN
        UPDATE pgqueue_step AS step SET wake_at = clock_timestamp()
        WHERE step.job_id = ANY (slept) AND step.kind = 'sleep' AND step.finished_at IS NULL;
    END IF;
    RETURN hurried;
END $$;
