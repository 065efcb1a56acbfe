-- Requeue at most p_limit jobs whose worker is not registered, and which no other recovery would find. This happens
-- if a claim behind a transaction pooler is committed after its worker's row was deleted. Return how many, and
-- those that are logged (pgqueue_give_back_v1).
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
