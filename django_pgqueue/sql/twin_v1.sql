-- Return the job that holds a unique key: the one that waits (scope 'waiting'), or the one that is not over (scope
-- 'live'). NULL: there is none. It is VOLATILE so that each call sees what has been committed until then.
CREATE FUNCTION pgqueue_twin_v1(p_key text, p_scope text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    IF p_scope = 'live' THEN
        RETURN (SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.unique_key = p_key AND job.unique_scope = 'live');
    END IF;
    RETURN (SELECT job.id FROM pgqueue_job_live AS job
        WHERE job.unique_key = p_key AND job.unique_scope = 'waiting'
            AND job.status IN ('pending', 'retry', 'blocked'));
END $$;
