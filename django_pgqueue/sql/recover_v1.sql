-- Give back the jobs of workers that are dead, at most p_limit; returns how many, and those that the log tells of
-- (pgqueue_give_back_v1). A job that was only held in advance counts no crash. One that had begun counts a crash if
-- its process ended alone, while its supervisor lived to see it. Where more ended than its process (its supervisor,
-- its host, several processes at once), something else is the likelier cause: then it counts a crash only if its last
-- run was lost like this, too. So a job that takes down everything around it reaches the limit as well, one run later.
--
-- Behind this stands a finish that takes a job by its lease alone: that of a worker that returns from the dead is
-- refused. Race: two supervisors may recover at once: each skips what the other has locked.
CREATE FUNCTION pgqueue_recover_v1(
    p_workers bigint[],
    p_begun bigint[],     -- the jobs that had begun, if somebody saw the process end; NULL: nobody did. Then these are
                          -- the jobs that its supervisor noted with the last heartbeat, and any may have begun.
    p_to_blame bigint[],  -- those of them that may count a crash; NULL: all
    p_alone boolean,      -- whether nothing but this process ended
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
    IF lost.ids IS NOT NULL THEN
        SELECT given.jobs, given.notable INTO jobs, notable
        FROM pgqueue_give_back_v1(
            lost.ids, lost.leases, lost.crashed, lost.lost, lost.begun, p_reason, NULL, p_crash_limit, p_keep_errors
        ) AS given;
    END IF;
END $$;
