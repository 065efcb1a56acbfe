-- Send the heartbeat of a worker in another language. Returns whether it is still registered (if not, its jobs were
-- requeued or soon will be), those of its jobs that were asked to cancel, and whether it was asked to end.
--
-- Race: recovery may find the worker dead at this moment. It holds the row until its commit, so this waits for it, and
-- finds no row afterwards.
CREATE FUNCTION pgqueue_heartbeat(
    worker bigint, OUT registered boolean, OUT cancel_requested bigint[], OUT asked_to_end boolean
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    UPDATE pgqueue_worker AS worker SET
        heartbeat_at = clock_timestamp(),
        state = CASE WHEN worker.drain <> '' THEN 'draining' ELSE worker.state END
    WHERE worker.id = pgqueue_heartbeat.worker
    RETURNING worker.drain <> '' INTO asked_to_end;
    registered := FOUND;
    asked_to_end := coalesce(asked_to_end, false);
    cancel_requested := ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job
        WHERE job.status = 'running' AND job.worker = pgqueue_heartbeat.worker AND job.cancel_requested_at IS NOT NULL
        ORDER BY job.id);
END $$;
