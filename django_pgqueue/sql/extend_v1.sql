-- Let running jobs run p_seconds more from now, if that is later than their deadline; returns the ids of those
-- that run. p_lease: only under this lease, as a job does it for itself. What has no deadline stays without.
-- The worker reads the deadline before it acts on it. Race: the worker may just have acted: then it is too
-- late, whatever the row says.
CREATE FUNCTION pgqueue_extend_v1(p_ids bigint[], p_seconds double precision, p_lease bigint DEFAULT NULL)
RETURNS SETOF bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF p_seconds IS NULL OR NOT p_seconds BETWEEN 0 AND 3155760000 THEN
        RAISE EXCEPTION 'pgqueue: extend takes seconds from 0 to 100 years, not %', coalesce(p_seconds::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- No more than an UPDATE takes: a task may hold its row FOR KEY SHARE while it writes what only the holder of
    -- the lease may write, and extend itself meanwhile.
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) ORDER BY job.id FOR NO KEY UPDATE;
    RETURN QUERY
        UPDATE pgqueue_job_live AS job SET deadline = CASE WHEN job.deadline IS NOT NULL
            THEN greatest(job.deadline, clock_timestamp() + p_seconds * interval '1 second') END
        WHERE job.id = ANY (p_ids) AND job.status = 'running' AND (p_lease IS NULL OR job.lease = p_lease)
        RETURNING job.id;
END $$;
