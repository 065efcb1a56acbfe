-- Whether a batch with failed members can never succeed by a retry, because not all of them are kept in history.
CREATE FUNCTION pgqueue_is_final_v1(p_batch bigint, p_failed bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT count(*) < p_failed FROM pgqueue_job_kept AS job WHERE job.batch = p_batch AND job.status = 'failed'
$$;
