-- Run jobs now that wait for a later time. Their budget of attempts does not change. A job whose task is paused runs
-- when the pause ends. Returns the ids of the jobs that changed.
CREATE FUNCTION pgqueue_run_now(ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    hurried bigint[];
    slept bigint[];
BEGIN
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (ids) ORDER BY job.id FOR UPDATE;
    WITH changed AS (
        UPDATE pgqueue_job_live AS job SET
            run_after = clock_timestamp(),
            waiting_reason = CASE WHEN job.status = 'blocked' THEN job.waiting_reason ELSE '' END,
            wait_position = CASE WHEN job.limit_key IS NOT NULL AND job.status <> 'blocked'
                THEN coalesce(job.wait_position, nextval('pgqueue_job_id_seq')) END
        WHERE job.id = ANY (ids) AND job.run_after > clock_timestamp() AND (
            job.status IN ('pending', 'retry')
            OR job.status = 'blocked' AND starts_with(job.waiting_reason, 'paused'))
        RETURNING job.id, job.marks
    )
    SELECT coalesce(array_agg(changed.id), '{}'), array_agg(changed.id) FILTER (WHERE changed.marks & 1 <> 0) INTO hurried, slept FROM changed;
    IF slept IS NOT NULL THEN
        PERFORM pgqueue_wake_steps_v1(slept);
    END IF;
    RETURN hurried;
END $$;
