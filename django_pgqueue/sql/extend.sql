-- Let running jobs run longer: until duration from now, if that is later than their deadline. Returns the ids of those
-- that run. lease: only a job with this lease, for one that extends itself. A job without a deadline does not get one.
-- The worker reads the deadline before it acts on it. Race: the worker may just have acted. Then the extension is too
-- late, whatever the row says.
CREATE FUNCTION pgqueue_extend(ids bigint[], duration interval, lease bigint DEFAULT NULL) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    extended bigint[];
BEGIN
    IF duration IS NULL OR NOT extract(epoch FROM duration) BETWEEN 0 AND 3155760000 THEN
        RAISE EXCEPTION 'pgqueue: extend: the duration must be from 0 to 100 years, not %', coalesce(duration::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Not a stronger lock than an UPDATE takes: a task may hold its row FOR KEY SHARE while it writes data that
    -- only the holder of the lease may write, and extend itself in the meantime.
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (ids) ORDER BY job.id FOR NO KEY UPDATE;
    WITH changed AS (
        UPDATE pgqueue_job_live AS job SET
            deadline = CASE WHEN job.deadline IS NOT NULL THEN greatest(job.deadline, clock_timestamp() + pgqueue_extend.duration) END
        WHERE job.id = ANY (ids) AND job.status = 'running'
            AND (pgqueue_extend.lease IS NULL OR job.lease = pgqueue_extend.lease)
        RETURNING job.id
    )
    SELECT coalesce(array_agg(changed.id), '{}') INTO extended FROM changed;
    RETURN extended;
END $$;
