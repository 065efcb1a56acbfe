-- Requeue the jobs of one worker, at most p_limit, after its supervisor has seen its process end, and delete the
-- worker's row. Return how many jobs were requeued, or NULL if there are more: call this again soon. notable has the
-- jobs that are logged (pgqueue_give_back_v1), in both cases. pgqueue_recover_v1 explains p_begun, p_to_blame and
-- p_alone.
--
-- Race: the server may still be executing the last claim of that process. Its jobs would be left with a worker that
-- is not registered. The session holds the worker's lock until then, so this waits for the lock.
CREATE FUNCTION pgqueue_recover_worker_v1(
    p_worker bigint, p_begun bigint[], p_to_blame bigint[], p_alone boolean, p_reason text,
    p_crash_limit integer, p_limit integer, p_keep_errors integer, OUT jobs integer, OUT notable jsonb
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    notable := '[]';
    IF NOT pg_try_advisory_xact_lock(pgqueue_lock_key_v1('worker', p_worker::text)) THEN
        RETURN;
    END IF;
    SELECT recovered.jobs, recovered.notable INTO jobs, notable
    FROM pgqueue_recover_v1(
        ARRAY[p_worker], p_begun, p_to_blame, p_alone, p_reason, p_crash_limit, p_limit, p_keep_errors) AS recovered;
    PERFORM pgqueue_forget_workers_v1(ARRAY[p_worker]);
    IF EXISTS (SELECT FROM pgqueue_worker AS worker WHERE worker.id = p_worker) THEN
        jobs := NULL;
    END IF;
END $$;
