-- Cancel jobs: waiting ones end at once, and running ones are asked to stop. Returns the ids of the jobs
-- that changed. What waits for them may be cancelled, too (_pgqueue_settle), but is not returned. reason: why the jobs
-- that have not started are cancelled; NULL: a user has asked for it. If a job of the relay may have handed over its
-- call, a further job cancels in the other database what the call has become (_pgqueue_recall).
--
-- Race: a job may be claimed or finished between the statements, so the rows are locked first, in the order of id, as
-- in every function that locks several rows, so that two such functions never deadlock.
CREATE FUNCTION pgqueue_cancel(ids bigint[], reason text DEFAULT NULL) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    cancelled bigint[];
    asked bigint[];
    freed text[];
    marked pgqueue_ended[];
    live integer;
    relayed bigint[];
    handed_over bigint[];
BEGIN
    SELECT count(*), array_agg(job.id) FILTER (
        WHERE job.task_path = 'django_pgqueue.jobs.relay.hand_over' AND job.last_attempted_at IS NOT NULL
            AND (job.status <> 'running' OR job.cancel_requested_at IS NULL))
    INTO live, relayed
    FROM (
        SELECT one.id, one.task_path, one.last_attempted_at, one.status, one.cancel_requested_at
        FROM pgqueue_job_live AS one WHERE one.id = ANY (ids) ORDER BY one.id FOR UPDATE
    ) AS job;
    IF relayed IS NOT NULL OR live < cardinality(ids) THEN
        handed_over := _pgqueue_recall(relayed, CASE WHEN live < cardinality(ids) THEN ids ELSE relayed END);
    END IF;

    SELECT gone.dropped, gone.freed, gone.marked INTO cancelled, freed, marked
    FROM _pgqueue_drop(ids, CASE WHEN reason IS NOT NULL
        THEN array_fill(reason, ARRAY[coalesce(cardinality(ids), 0)]) END) AS gone;
    IF marked IS NOT NULL THEN
        PERFORM _pgqueue_settle(marked);
    END IF;
    IF freed IS NOT NULL THEN
        PERFORM _pgqueue_release(freed);  -- one of them may have been the one that the others waited behind
    END IF;

    WITH running AS (
        UPDATE pgqueue_job_live AS job SET cancel_requested_at = clock_timestamp()
        WHERE job.id = ANY (ids) AND job.status = 'running' AND job.cancel_requested_at IS NULL
        RETURNING job.id
    )
    SELECT array_agg(running.id) INTO asked FROM running;
    PERFORM pg_notify(_pgqueue_channel(), 'cancel ' || asking.id) FROM unnest(asked) AS asking (id);
    RETURN cancelled || asked || handed_over;
END $$;

-- Move jobs that do not run to history as cancelled. The caller has locked their rows. p_reasons says why, for each
-- of p_ids; NULL: a user has asked for it. Why a job has waited ends with it. Returns the ids of the jobs that were
-- moved, their limit keys, and those with marks, for _pgqueue_settle.
CREATE FUNCTION _pgqueue_drop(
    p_ids bigint[], p_reasons text[], OUT dropped bigint[], OUT freed text[], OUT marked pgqueue_ended[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ring pgqueue_ring;
BEGIN
    SELECT * INTO STRICT ring FROM pgqueue_ring;
    WITH gone AS (
        DELETE FROM pgqueue_job_live AS job
        WHERE job.id = ANY (p_ids) AND job.status <> 'running'
        RETURNING job.*
    ), moved AS (
        INSERT INTO pgqueue_job (
            /*unchanged*/, shelf, status, run_after, expires_at, attempts, forgiven_attempts, crash_count,
            lost_in_a_row, marks, current_step, steps, worker, lease, started_at, last_attempted_at, deadline,
            cancel_requested_at, waiting_reason, finished_at, duration, result, errors, error_fingerprint,
            wait_position, logs
        )
        SELECT /*gone.unchanged*/, _pgqueue_shelf('cancelled', queue.retention, queue.failed_retention, ring),
            'cancelled', gone.run_after, gone.expires_at, gone.attempts, gone.forgiven_attempts, gone.crash_count,
            gone.lost_in_a_row, gone.marks, gone.current_step,
            CASE WHEN gone.marks & 1 <> 0 THEN _pgqueue_fold_steps(gone.id, 'cancelled') END, gone.worker, gone.lease,
            gone.started_at, gone.last_attempted_at, gone.deadline,
            CASE WHEN p_reasons IS NULL THEN clock_timestamp() ELSE gone.cancel_requested_at END,
            coalesce(p_reasons[array_position(p_ids, gone.id)], ''), clock_timestamp(), gone.duration, gone.result,
            gone.errors, gone.error_fingerprint, gone.wait_position, gone.logs
        FROM gone LEFT JOIN pgqueue_queue AS queue ON queue.name = gone.queue_name
        WHERE _pgqueue_shelf('cancelled', queue.retention, queue.failed_retention, ring) IS NOT NULL
    )
    SELECT coalesce(array_agg(gone.id), '{}'), array_agg(gone.limit_key) FILTER (WHERE gone.limit_key IS NOT NULL),
        array_agg(ROW(gone.id, 'cancelled', gone.marks, gone.batch)::pgqueue_ended) FILTER (WHERE gone.marks <> 0)
    INTO dropped, freed, marked FROM gone;
END $$;
