-- Give back all jobs of one worker whose process its supervisor has seen end, and forget the worker. Returns
-- how many jobs went back, at most p_limit; NULL: not all yet, call again soon. notable has those that the log tells
-- of (pgqueue_give_back_v1), in either case. What p_begun, p_to_blame and p_alone mean, see pgqueue_recover_v1.
--
-- Race: the server may still be busy with the last claim of that process, whose jobs would be left with a worker
-- that nobody knows. It holds the worker's lock until it is through, so that lock is waited for.
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
