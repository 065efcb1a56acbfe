-- Requeue at most p_limit jobs of dead workers. Return how many, and those that are logged (pgqueue_give_back_v1).
-- A job that was only claimed in advance counts no crash. A job that had started counts a crash if its process ended
-- alone while its supervisor was alive. If more than its process ended (its supervisor, its host, several processes at
-- once), the job is probably not the cause. It then counts a crash only if its last run was lost as well. So a job
-- that takes down everything around it also reaches the limit, one run later.
--
-- If a worker turns out to be alive, its reports are refused, because a finish needs the lease of the job.
-- Race: two supervisors may recover at once. Each of them skips the rows that the other one has locked.
-- Race: a twin of a job with a unique key is in a transaction that is still open (pgqueue_finish_keyed_v1). Then the jobs
-- are requeued one by one, and those that would have to wait stay for a later round.
CREATE FUNCTION pgqueue_recover_v1(
    p_workers bigint[],
    p_begun bigint[],     -- the jobs that had started, if the supervisor saw the process end. NULL: it did not. Then
                          -- these are the jobs that it noted with the last heartbeat, and any may have started.
    p_to_blame bigint[],  -- the ones that may count a crash; NULL: all of them
    p_alone boolean,      -- whether only this process ended
    p_reason text, p_crash_limit integer, p_limit integer, p_keep_errors integer,
    OUT jobs integer, OUT notable jsonb
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    lost record;
    seen bigint[] := coalesce(p_begun, ARRAY(
        SELECT unnest(worker.started_jobs) FROM pgqueue_worker AS worker WHERE worker.id = ANY (p_workers)));
BEGIN
    SELECT array_agg(job.id) AS ids, array_agg(job.lease) AS leases,
        array_agg(p_alone AND job.suspect) AS crashed,
        array_agg(NOT p_alone AND job.suspect) AS lost,
        array_agg(p_begun IS NULL OR job.id = ANY (seen)) AS begun
    INTO lost
    FROM (
        SELECT live.id, live.lease,
            live.id = ANY (seen) AND (p_to_blame IS NULL OR live.id = ANY (p_to_blame)) AS suspect
        FROM pgqueue_job_live AS live
        WHERE live.status = 'running' AND live.worker = ANY (p_workers)
        ORDER BY live.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) AS job;
    jobs := 0;
    notable := '[]';
    IF lost.ids IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        SELECT given.jobs, given.notable INTO jobs, notable
        FROM pgqueue_give_back_v1(
            lost.ids, lost.leases, lost.crashed, lost.lost, lost.begun, p_reason, NULL, p_crash_limit, p_keep_errors
        ) AS given;
    EXCEPTION WHEN lock_not_available THEN
        SELECT given.jobs, given.notable INTO jobs, notable
        FROM pgqueue_give_back_each_v1(
            lost.ids, lost.leases, lost.crashed, lost.lost, lost.begun, p_reason, p_crash_limit, p_keep_errors
        ) AS given;
    END;
END $$;
