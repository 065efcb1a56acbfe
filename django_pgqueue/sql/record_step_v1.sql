-- Record that a step of a running job is done: one durable call, under the lease. Returns 'recorded', 'lost' (the lease
-- was lost: what this attempt does no longer counts), or 'taken' (there is an event or a sleep with this name).
--
-- A job that has recorded a step gets its whole budget of attempts for the next one, so the attempts before this
-- one are forgiven. Only the first step of an attempt (p_first) writes to the row of the job. An UPDATE for each step
-- would cost more than twice as much.
--
-- Race: recovery may take the job away at the same moment. It updates the row, so it waits for the lock, and the step
-- belongs to the attempts before. If recovery came first, the lease differs. Steps that end side by side share the lock.
-- Race: two of them may both be the first. Both update, and do not first share the lock, which would be a deadlock.
CREATE FUNCTION pgqueue_record_step_v1(
    p_job bigint, p_lease bigint, p_first boolean, p_attempt integer, p_name text, p_seconds double precision,
    p_inputs bigint, p_result jsonb
) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF p_first THEN
        UPDATE pgqueue_job_live AS job SET
            current_step = p_name, marks = job.marks | 1,
            forgiven_attempts = greatest(job.forgiven_attempts, job.attempts - 1)
        WHERE job.id = p_job AND job.lease = p_lease;
    ELSE
        PERFORM FROM pgqueue_job_live AS job WHERE job.id = p_job AND job.lease = p_lease FOR SHARE;
    END IF;
    IF NOT FOUND THEN
        RETURN 'lost';
    END IF;
    INSERT INTO pgqueue_step (job_id, name, attempt, seconds, finished_at, inputs, result)
    VALUES (p_job, p_name, p_attempt, p_seconds, clock_timestamp(), p_inputs, p_result)
    ON CONFLICT (job_id, name) DO NOTHING;
    RETURN CASE WHEN FOUND THEN 'recorded' ELSE 'taken' END;
END $$;
