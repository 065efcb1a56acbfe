-- Remove workers from the table, except those that still hold a job, which must be found dead later.
CREATE FUNCTION pgqueue_forget_workers_v1(p_workers bigint[]) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    DELETE FROM pgqueue_worker AS worker WHERE worker.id = ANY (p_workers) AND NOT EXISTS (
        SELECT FROM pgqueue_job_live AS job WHERE job.status = 'running' AND job.worker = worker.id)
$$;
