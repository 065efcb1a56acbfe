-- Give back jobs, at most p_limit, that run under a worker that is not on the list, so that nobody would ever
-- find it dead: a claim behind a transaction pooler may be committed after its worker was removed from
-- it. Returns how many, and those that the log tells of (pgqueue_give_back_v1).
CREATE FUNCTION pgqueue_recover_strays_v1(
    p_crash_limit integer, p_limit integer, p_keep_errors integer, OUT jobs integer, OUT notable jsonb
) LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT recovered.jobs, recovered.notable FROM pgqueue_recover_v1(
        ARRAY(
            SELECT DISTINCT job.worker FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND NOT EXISTS (
                SELECT FROM pgqueue_worker AS worker WHERE worker.id = job.worker)
        ), NULL, NULL, false, 'its worker was lost', p_crash_limit, p_limit, p_keep_errors) AS recovered
$$;
