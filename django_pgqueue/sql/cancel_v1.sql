-- Cancel jobs: those that have not started end at once, and running ones are asked to stop. Returns the
-- number of changed rows. Race: a job may be claimed or finished between the statements, so the rows are
-- locked first, in the order of id (as in every function that locks several rows, so that two such functions
-- never deadlock). p_reason: why the jobs that have not started are cancelled, if nobody has asked for it.
CREATE FUNCTION pgqueue_cancel_v1(p_ids bigint[], p_reason text DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ring pgqueue_ring;
    cancelled integer;
    asked integer;
    freed text[];
    marked pgqueue_ended_v1[];
BEGIN
    SELECT * INTO STRICT ring FROM pgqueue_ring;
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) ORDER BY job.id FOR UPDATE;

    WITH gone AS (
        DELETE FROM pgqueue_job_live AS job
        WHERE job.id = ANY (p_ids) AND job.status <> 'running'
        RETURNING job.*
    ), moved AS (
        INSERT INTO pgqueue_job (
            id, shelf, status, task_path, args, kwargs, metadata, queue_name, priority, run_after, expires_at,
            enqueued_at, max_attempts, timeout, on_lost, attempts, forgiven_attempts, crash_count,
            lost_in_a_row, marks, current_step, steps, worker, lease, started_at, last_attempted_at, deadline, cancel_requested_at,
            waiting_reason, finished_at, duration, result, errors, error_fingerprint, limit_key, line, group_key,
            unique_key, unique_scope, context, logs
        )
        SELECT gone.id, pgqueue_shelf_v1('cancelled', queue.keep_done, queue.keep_failed, ring), 'cancelled',
            gone.task_path, gone.args, gone.kwargs, gone.metadata, gone.queue_name, gone.priority, gone.run_after,
            gone.expires_at, gone.enqueued_at, gone.max_attempts, gone.timeout, gone.on_lost, gone.attempts,
            gone.forgiven_attempts, gone.crash_count, gone.lost_in_a_row, gone.marks, gone.current_step,
            CASE WHEN gone.marks & 1 <> 0 THEN pgqueue_fold_steps_v1(gone.id, 'cancelled') END,
            gone.worker, gone.lease, gone.started_at,
            gone.last_attempted_at, gone.deadline,
            CASE WHEN p_reason IS NULL THEN clock_timestamp() ELSE gone.cancel_requested_at END,
            coalesce(p_reason, gone.waiting_reason), clock_timestamp(),
            gone.duration, gone.result, gone.errors, gone.error_fingerprint, gone.limit_key, gone.line,
            gone.group_key, gone.unique_key, gone.unique_scope, gone.context, gone.logs
        FROM gone LEFT JOIN pgqueue_queue AS queue ON queue.name = gone.queue_name
        WHERE pgqueue_shelf_v1('cancelled', queue.keep_done, queue.keep_failed, ring) IS NOT NULL
    )
    SELECT count(*), array_agg(gone.limit_key) FILTER (WHERE gone.limit_key IS NOT NULL),
        array_agg(ROW(gone.id, 'cancelled', gone.marks)::pgqueue_ended_v1) FILTER (WHERE gone.marks <> 0)
    INTO cancelled, freed, marked FROM gone;
    IF marked IS NOT NULL THEN
        PERFORM pgqueue_settle_v1(marked);
    END IF;
    IF freed IS NOT NULL THEN
        PERFORM pgqueue_release_v1(freed);  -- one of them may have been the one that the others waited behind
    END IF;

    WITH running AS (
        UPDATE pgqueue_job_live AS job SET cancel_requested_at = clock_timestamp()
        WHERE job.id = ANY (p_ids) AND job.status = 'running' AND job.cancel_requested_at IS NULL
        RETURNING job.id
    )
    SELECT count(pg_notify(pgqueue_channel_v1(), 'cancel ' || running.id)) INTO asked FROM running;
    RETURN cancelled + asked;
END $$;
