-- Let running jobs run p_seconds more from now, if that is later than their deadline. Returns the ids of the
-- running jobs. p_lease: only jobs with this lease, for a job that extends itself. A job without a deadline does
-- not get one. The worker reads the deadline before it acts on it. Race: the worker may just have acted. Then
-- the extension is too late, whatever the row says.
CREATE FUNCTION pgqueue_extend_v1(p_ids bigint[], p_seconds double precision, p_lease bigint DEFAULT NULL)
RETURNS SETOF bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF p_seconds IS NULL OR NOT p_seconds BETWEEN 0 AND 3155760000 THEN
        RAISE EXCEPTION 'pgqueue: extend: the duration must be from 0 to 100 years, not % seconds', coalesce(p_seconds::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Not a stronger lock than an UPDATE takes: a task may hold its row FOR KEY SHARE while it writes data that
    -- only the holder of the lease may write, and extend itself in the meantime.
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) ORDER BY job.id FOR NO KEY UPDATE;
    RETURN QUERY
        UPDATE pgqueue_job_live AS job SET deadline = CASE WHEN job.deadline IS NOT NULL
            THEN greatest(job.deadline, clock_timestamp() + p_seconds * interval '1 second') END
        WHERE job.id = ANY (p_ids) AND job.status = 'running' AND (p_lease IS NULL OR job.lease = p_lease)
        RETURNING job.id;
END $$;
