-- The stable name for plain SQL, for workers in other languages: SELECT pgqueue_progress(5, 40, 100, 'reading').
-- Returns whether the job runs; with a lease, whether it runs under this lease. Once a second is often enough.
CREATE FUNCTION pgqueue_progress(
    id bigint, done double precision, total double precision DEFAULT NULL, note text DEFAULT '',
    lease bigint DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    held bigint;
    problem text := CASE
        WHEN done IS NULL OR NOT done BETWEEN 0 AND 9007199254740992
            THEN format('done must be a number from 0 to 2^53, not %s', coalesce(done::text, 'NULL'))
        WHEN NOT total BETWEEN 0 AND 9007199254740992
            THEN format('total must be a number from 0 to 2^53, or NULL, not %s', total)
    END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: progress: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- This one waits for the row, which the function below would leave out.
    SELECT job.lease INTO held FROM pgqueue_job_live AS job
    WHERE job.id = $1 AND job.status = 'running' AND ($5 IS NULL OR job.lease = $5) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pgqueue_write_progress_v1(
        ARRAY[id], ARRAY[held], ARRAY[NULL::text], ARRAY[done], ARRAY[total], ARRAY[coalesce(note, '')]);
    RETURN true;
END $$;
