-- Give back the jobs of workers that are dead, at most p_limit; returns how many. What had begun counts a crash,
-- what was only held in advance counts nothing. p_begun: the jobs that had begun, if somebody saw the process
-- die and knows; NULL: nobody did, then those that its supervisor saw begun at the last heartbeat count a crash,
-- and any may have begun. p_to_blame: those of them that count a crash; NULL: all. Behind it stands
-- a finish that takes a job by its lease alone: that of a worker that returns from the dead is refused.
-- Race: two supervisors may recover at once: each skips what the other has locked.
CREATE FUNCTION pgqueue_recover_v1(
    p_workers bigint[], p_begun bigint[], p_to_blame bigint[], p_reason text, p_crash_limit integer,
    p_limit integer, p_keep_errors integer
) RETURNS integer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    lost record;
    seen bigint[] := coalesce(p_begun, ARRAY(
        SELECT unnest(worker.started_jobs) FROM pgqueue_worker AS worker WHERE worker.id = ANY (p_workers)));
BEGIN
    SELECT array_agg(job.id) AS ids, array_agg(job.lease) AS leases,
        array_agg(job.id = ANY (seen) AND (p_to_blame IS NULL OR job.id = ANY (p_to_blame))) AS crashed,
        array_agg(p_begun IS NULL OR job.id = ANY (seen)) AS begun
    INTO lost
    FROM (
        SELECT live.id, live.lease FROM pgqueue_job_live AS live
        WHERE live.status = 'running' AND live.worker = ANY (p_workers)
        ORDER BY live.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) AS job;
    IF lost.ids IS NULL THEN
        RETURN 0;
    END IF;
    RETURN cardinality(pgqueue_give_back_v1(
        lost.ids, lost.leases, lost.crashed, lost.begun, p_reason, NULL, p_crash_limit, p_keep_errors));
END $$;
