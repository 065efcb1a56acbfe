-- Report the outcomes of a batch of claimed jobs: done, failed, cancelled (the job has finished and moves to history),
-- retry, snooze (run again after a delay), wait (snooze until an event), release (requeued unstarted), unknown
-- (requeued by a worker that does not know the task; started_at keeps the time when this was first found), paused (put
-- aside unstarted, blocked until a pause ends). Of the outcomes that run again, only retry counts as an
-- attempt. Unused arrays may be NULL. Returns the ids of the accepted outcomes. The lease of a job that is missing
-- there was lost. cancelled has the jobs that would run again, but were asked to cancel or met a twin; it is NULL if
-- there are none.
--
-- In the functions that this calls, a job is matched only by id and lease. With a test of the status, too, the planner
-- could use the index of running jobs, at twenty times the cost. The ids are given twice, as an array and in the rows
-- that are joined: for an array, the server walks through the index once, and not from its root for each job. It always
-- does so, and so it locks the jobs in the order of id, as all others do: a scan of a small table would lock them in
-- any order.
CREATE FUNCTION _pgqueue_finish(
    p_ids bigint[],
    p_leases bigint[],
    p_outcomes text[],                   -- NULL: all done
    p_results jsonb[],
    p_errors jsonb[],
    p_fingerprints text[],
    p_delays double precision[],         -- seconds until the next run
    p_started_ago double precision[],    -- seconds since the task started; NULL: it never started
    p_durations double precision[],      -- seconds that it ran, if it ended before this report; NULL: until now
    p_reasons text[],                    -- why the job waits, or why it was cancelled
    p_keep_errors integer,
    p_logs jsonb[] DEFAULT NULL,         -- what each attempt has logged, if that is captured
    p_twins bigint[] DEFAULT NULL,       -- the jobs that met a twin (_pgqueue_finish_keyed); NULL: not known yet
    OUT accepted bigint[],
    OUT cancelled bigint[]
) LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan TO off SET enable_bitmapscan TO off AS $$
DECLARE
    requeues boolean := coalesce(
        p_outcomes && ARRAY['retry', 'snooze', 'release', 'unknown', 'paused', 'wait'], false);
    keyed bigint[];
    ended record;
    requeued record;
BEGIN
    IF requeues THEN
        -- Race: neither the end nor the requeue would see a cancel that comes between them.
        -- With a WHERE instead of the FILTER, only the jobs with a key would be locked.
        SELECT array_agg(locked.id) FILTER (WHERE locked.unique_scope = 'waiting') INTO keyed FROM (
            SELECT job.id, job.unique_scope FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids)
            ORDER BY job.id FOR UPDATE
        ) AS locked;
        IF keyed IS NOT NULL AND p_twins IS NULL THEN
            SELECT * INTO accepted, cancelled FROM _pgqueue_finish_keyed(
                keyed, p_ids, p_leases, p_outcomes, p_results, p_errors, p_fingerprints, p_delays, p_started_ago,
                p_durations, p_reasons, p_keep_errors, p_logs);
            RETURN;
        END IF;
    END IF;
    SELECT * INTO ended FROM _pgqueue_end_jobs(
        p_ids, p_leases, p_outcomes, p_results, p_errors, p_fingerprints, p_started_ago, p_durations, p_reasons,
        p_keep_errors, p_logs, p_twins);
    cancelled := ended.cancelled;
    IF ended.marked IS NOT NULL THEN
        PERFORM _pgqueue_settle(ended.marked);
    END IF;
    IF requeues THEN
        SELECT * INTO requeued FROM _pgqueue_requeue_jobs(
            p_ids, p_leases, p_outcomes, p_errors, p_fingerprints, p_delays, p_started_ago, p_reasons, p_keep_errors,
            p_logs);
        accepted := ended.ids || requeued.ids;
        ended.freed := ended.freed || requeued.freed;
        ended.failed := ended.failed || requeued.failed;
    ELSE
        accepted := ended.ids;
    END IF;
    IF ended.freed IS NOT NULL THEN
        -- Race: a claim may put a job in line behind one that ends here, and locks that one, so the DELETE waited for
        -- its commit. This is another statement, whose snapshot sees the line.
        PERFORM _pgqueue_release(ended.freed);
    END IF;
    IF ended.failed IS NOT NULL THEN
        PERFORM _pgqueue_note_failures(ended.failed);
    END IF;
    accepted := coalesce(accepted, '{}');
END $$;

-- Move the finished jobs to history: jobs with a final outcome, jobs that were asked to cancel, and jobs that
-- met a twin. freed has their limit keys, marked those with marks, for _pgqueue_settle, and failed their attempts that
-- failed. Without such jobs, each of them is NULL.
--
-- This takes a DELETE and an INSERT: an UPDATE of the shelf would make statements that wait for the row fail with a
-- serialization error.
CREATE FUNCTION _pgqueue_end_jobs(
    p_ids bigint[], p_leases bigint[], p_outcomes text[], p_results jsonb[], p_errors jsonb[], p_fingerprints text[],
    p_started_ago double precision[], p_durations double precision[], p_reasons text[], p_keep_errors integer,
    p_logs jsonb[], p_twins bigint[],
    OUT ids bigint[], OUT cancelled bigint[], OUT freed text[], OUT marked pgqueue_ended[], OUT failed pgqueue_failed[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ring pgqueue_ring;
BEGIN
    SELECT * INTO STRICT ring FROM pgqueue_ring;
    WITH gone AS (
        DELETE FROM pgqueue_job_live AS job
        USING unnest(
            p_ids, p_leases, coalesce(p_outcomes, array_fill(text 'done', ARRAY[cardinality(p_ids)])), p_results,
            p_errors, p_fingerprints, p_started_ago, p_durations, p_reasons, p_logs
        ) AS given (id, lease, outcome, result, error, fingerprint, started_ago, duration, reason, log)
        WHERE job.id = ANY (p_ids) AND job.id = given.id AND job.lease = given.lease
            AND (given.outcome IN ('done', 'failed', 'cancelled') OR job.cancel_requested_at IS NOT NULL
                OR job.id = ANY (p_twins))
        RETURNING /*job.unchanged*/, job.run_after, job.expires_at,
            job.attempts - (
                given.outcome IN ('snooze', 'release', 'unknown', 'paused', 'wait')
                OR given.outcome = 'cancelled' AND given.started_ago IS NULL  -- it had expired and never ran
            )::integer AS attempts,
            job.forgiven_attempts, job.crash_count, job.lost_in_a_row, job.marks, job.current_step, job.worker,
            job.lease, job.started_at, job.last_attempted_at, job.deadline, job.cancel_requested_at, job.errors,
            job.wait_position, job.logs,
            CASE WHEN given.outcome IN ('done', 'failed') THEN given.outcome ELSE 'cancelled' END AS outcome,
            given.outcome AS reported,
            given.result,
            -- Most jobs have none: the object would cost them 2 microseconds each.
            CASE WHEN given.error IS NOT NULL THEN given.error || jsonb_build_object(
                'started_at', clock_timestamp() - given.started_ago * interval '1 second',
                'finished_at', clock_timestamp()) END AS error,
            CASE WHEN given.outcome IN ('failed', 'retry')
                THEN coalesce(nullif(given.fingerprint, ''), _pgqueue_fingerprint(job.task_path, given.error))
                ELSE coalesce(given.fingerprint, job.error_fingerprint) END AS error_fingerprint,
            given.reason, given.log,
            clock_timestamp() - given.started_ago * interval '1 second' AS began,
            coalesce(given.duration, given.started_ago) AS duration
    ), moved AS (
        INSERT INTO pgqueue_job (
            /*unchanged*/, shelf, status, run_after, expires_at, attempts, forgiven_attempts, crash_count,
            lost_in_a_row, marks, current_step, steps, worker, lease, started_at, last_attempted_at, deadline,
            cancel_requested_at, waiting_reason, finished_at, duration, result, errors, error_fingerprint,
            wait_position, logs
        )
        SELECT /*gone.unchanged*/,
            _pgqueue_shelf(gone.outcome, queue.retention, queue.failed_retention, ring), gone.outcome, gone.run_after,
            gone.expires_at, gone.attempts, gone.forgiven_attempts, gone.crash_count, gone.lost_in_a_row, gone.marks,
            gone.current_step, CASE WHEN gone.marks & 1 <> 0 THEN _pgqueue_fold_steps(gone.id, gone.outcome) END,
            gone.worker, gone.lease,
            CASE WHEN gone.attempts > (gone.began IS NOT NULL)::integer THEN gone.started_at ELSE gone.began END,
            coalesce(gone.began, CASE WHEN gone.attempts > 0 THEN gone.last_attempted_at END), gone.deadline,
            gone.cancel_requested_at, coalesce(gone.reason, ''), clock_timestamp(), gone.duration, gone.result,
            _pgqueue_append(gone.errors, gone.error, p_keep_errors), gone.error_fingerprint,
            gone.wait_position,
            _pgqueue_append(gone.logs, gone.log, p_keep_errors)
        FROM gone LEFT JOIN pgqueue_queue AS queue ON queue.name = gone.queue_name
        WHERE _pgqueue_shelf(gone.outcome, queue.retention, queue.failed_retention, ring) IS NOT NULL
    )
    SELECT array_agg(gone.id), array_agg(gone.id) FILTER (WHERE gone.outcome <> gone.reported),
        array_agg(gone.limit_key) FILTER (WHERE gone.limit_key IS NOT NULL),
        array_agg(ROW(gone.id, gone.outcome, gone.marks, gone.batch)::pgqueue_ended) FILTER (WHERE gone.marks <> 0),
        array_agg(ROW(gone.id, gone.task_path, gone.queue_name, gone.error_fingerprint, gone.outcome = 'failed',
            gone.error)::pgqueue_failed) FILTER (WHERE gone.reported IN ('failed', 'retry'))
    INTO ids, cancelled, freed, marked, failed FROM gone;
END $$;

-- Let the others run again: at once, after a delay, at the next event, or at the end of a pause. The caller has locked
-- the jobs. Returns as _pgqueue_end_jobs does.
CREATE FUNCTION _pgqueue_requeue_jobs(
    p_ids bigint[], p_leases bigint[], p_outcomes text[], p_errors jsonb[], p_fingerprints text[],
    p_delays double precision[], p_started_ago double precision[], p_reasons text[], p_keep_errors integer,
    p_logs jsonb[], OUT ids bigint[], OUT freed text[], OUT failed pgqueue_failed[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    held text[];      -- the paused tasks, and the reasons of other pauses, that do not end before this commit
    changing text[];  -- those whose pause is being resumed at this moment
BEGIN
    IF 'paused' = ANY (p_outcomes) THEN
        -- Race: the pause may end before the worker hears of it, and then no session would let this job continue.
        -- It is therefore put aside only under a lock of its pause. A resume waits for that lock, and sees the job
        -- afterwards. If the resume came first, the job is requeued. It is not known yet if the resume commits, and
        -- this does not wait for it, so a worker looks at the job again in a second.
        held := ARRAY(
            SELECT CASE pause.kind WHEN 'task' THEN pause.name ELSE _pgqueue_pause_reason(pause) END
            FROM pgqueue_pause AS pause
            WHERE pause.kind NOT IN ('all', 'queue') AND (pause.until IS NULL OR pause.until > clock_timestamp())
            ORDER BY pause.id FOR KEY SHARE SKIP LOCKED);
        changing := ARRAY(
            SELECT CASE pause.kind WHEN 'task' THEN pause.name ELSE _pgqueue_pause_reason(pause) END
            FROM pgqueue_pause AS pause
            WHERE pause.kind NOT IN ('all', 'queue') AND (pause.until IS NULL OR pause.until > clock_timestamp()));
    END IF;
    WITH given AS MATERIALIZED (
        SELECT item.id, item.lease, item.outcome, item.fingerprint, item.delay, item.started_ago, item.reason, item.log,
            -- Race: the event may have come after the task asked for it. The caller has locked the row of the job, as
            -- every event does first, so it is seen here.
            CASE WHEN item.outcome = 'wait' THEN (
                SELECT step.finished_at IS NOT NULL FROM pgqueue_job_live AS job
                JOIN pgqueue_step AS step ON step.job_id = job.id AND step.name = job.current_step
                WHERE job.id = item.id) END AS has_event,
            CASE WHEN item.outcome = 'paused' THEN (
                SELECT CASE WHEN held && ARRAY[job.task_path::text, item.reason] THEN 'on'
                    WHEN changing && ARRAY[job.task_path::text, item.reason] THEN 'changing' ELSE 'over' END
                FROM pgqueue_job_live AS job WHERE job.id = item.id) END AS pause,
            CASE WHEN item.error IS NOT NULL THEN item.error || jsonb_build_object(
                'started_at', clock_timestamp() - item.started_ago * interval '1 second',
                'finished_at', clock_timestamp()) END AS error
        FROM unnest(
            p_ids, p_leases, p_outcomes, p_errors, p_fingerprints, p_delays, p_started_ago, p_reasons, p_logs
        ) AS item (id, lease, outcome, error, fingerprint, delay, started_ago, reason, log)
        WHERE item.outcome IN ('retry', 'snooze', 'release', 'unknown', 'paused', 'wait')
    ), back AS (
        UPDATE pgqueue_job_live AS job SET
            status = CASE
                WHEN given.pause = 'on' THEN 'blocked'
                WHEN given.outcome = 'retry' OR job.attempts > 1 THEN 'retry' ELSE 'pending' END,
            attempts = job.attempts - (given.outcome <> 'retry')::integer,
            run_after = CASE
                WHEN given.pause = 'on' THEN job.run_after
                WHEN given.has_event THEN clock_timestamp()
                ELSE greatest(job.run_after, clock_timestamp() + interval '1 second' * CASE
                    WHEN given.pause = 'changing' THEN 1 ELSE coalesce(given.delay, 0) END) END,
            started_at = CASE
                WHEN job.attempts > 1 OR given.outcome = 'unknown' THEN job.started_at
                ELSE clock_timestamp() - given.started_ago * interval '1 second' END,
            -- What ran to an end was not lost; what goes back without having run proves nothing.
            lost_in_a_row = CASE
                WHEN given.outcome IN ('retry', 'snooze', 'wait') THEN 0 ELSE job.lost_in_a_row END,
            worker = NULL, lease = NULL, deadline = NULL,
            -- A job that has begun is not cancelled because it starts late.
            expires_at = CASE WHEN job.marks & 1 = 0 THEN job.expires_at END,
            -- What did not run keeps its place in the wait queue of its key; what waits for a time, or for the end
            -- of a pause, is in no line.
            wait_position = CASE
                WHEN given.outcome = 'release' AND coalesce(given.delay, 0) = 0 OR given.pause = 'over'
                THEN job.wait_position END,
            waiting_reason = CASE
                WHEN given.pause <> 'on' OR given.has_event THEN ''
                ELSE coalesce(given.reason, '') END,
            errors = _pgqueue_append(job.errors, given.error, p_keep_errors),
            error_fingerprint = CASE WHEN given.outcome = 'retry'
                THEN coalesce(nullif(given.fingerprint, ''), _pgqueue_fingerprint(job.task_path, given.error))
                ELSE job.error_fingerprint END,
            logs = _pgqueue_append(job.logs, given.log, p_keep_errors)
        FROM given WHERE job.id = given.id AND job.lease = given.lease
        RETURNING job.id, job.limit_key, job.task_path, job.queue_name, job.error_fingerprint, given.outcome,
            given.error
    )
    SELECT array_agg(back.id), array_agg(back.limit_key) FILTER (WHERE back.limit_key IS NOT NULL),
        array_agg(ROW(back.id, back.task_path, back.queue_name, back.error_fingerprint, false, back.error
            )::pgqueue_failed) FILTER (WHERE back.outcome = 'retry')
    INTO ids, freed, failed FROM back;
END $$;

-- Finish a batch in which jobs with a unique key go back to waiting (scope 'waiting'; the others cannot meet a twin).
-- While they ran, others with the same key may have been enqueued. A job that meets such a twin ends as cancelled, with
-- a reason that names the twin, and keeps its error. Of several jobs of the batch with the same key, the first waits.
--
-- Race: a twin is committed between the look and the UPDATE. That raises unique_violation, which would refuse the whole
-- batch, so it runs in a subtransaction, and this looks again. Race: a twin is in a transaction that is still open. The
-- UPDATE would wait for its end, and with it the whole batch, so this gives up after 50 ms (lock_not_available).
-- Workers then report the jobs one by one, and keep the one that has to wait. A deadlock with an enqueue of several
-- keys would need a second.
CREATE FUNCTION _pgqueue_finish_keyed(
    p_keyed bigint[], p_ids bigint[], p_leases bigint[], p_outcomes text[], p_results jsonb[], p_errors jsonb[],
    p_fingerprints text[], p_delays double precision[], p_started_ago double precision[],
    p_durations double precision[], p_reasons text[], p_keep_errors integer, p_logs jsonb[],
    OUT accepted bigint[], OUT cancelled bigint[]
) LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    met record;
BEGIN
    FOR attempt IN 1..10 LOOP
        SELECT coalesce(array_agg(given.id) FILTER (WHERE back.twin IS NOT NULL), '{}') AS ids,
            array_agg(CASE WHEN back.twin IS NULL THEN given.reason ELSE
                format('job %s with the same unique key waits in its place', back.twin) END ORDER BY given.place
            ) AS reasons
        INTO met
        FROM unnest(p_ids, p_reasons) WITH ORDINALITY AS given (id, reason, place)
        LEFT JOIN (
            SELECT keyed.id, coalesce(
                _pgqueue_twin(keyed.unique_key, 'waiting'),
                nullif(min(keyed.id) OVER (PARTITION BY keyed.unique_key), keyed.id)) AS twin
            FROM unnest(p_ids, p_leases, p_outcomes) AS item (id, lease, outcome)
            JOIN pgqueue_job_live AS keyed ON keyed.id = item.id AND keyed.lease = item.lease
            WHERE keyed.id = ANY (p_keyed) AND keyed.cancel_requested_at IS NULL
                AND item.outcome IN ('retry', 'snooze', 'release', 'unknown', 'paused', 'wait')
        ) AS back ON back.id = given.id;
        BEGIN
            SELECT * INTO accepted, cancelled FROM _pgqueue_finish(
                p_ids, p_leases, p_outcomes, p_results, p_errors, p_fingerprints, p_delays, p_started_ago,
                p_durations, met.reasons, p_keep_errors, p_logs, met.ids);
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END LOOP;
    RAISE EXCEPTION 'pgqueue: the unique keys of jobs that go back change hands too fast'
        USING ERRCODE = 'lock_not_available', HINT = 'Report these jobs again.';
END $$;
