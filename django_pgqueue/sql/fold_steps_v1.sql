-- What history keeps of the steps of a job: of a done job their names and times, of others also their results, because
-- a retry goes on from there.
--
-- Race: an event may be committed while the statement that calls this waits for the row of the job. A stable function
-- would not see it, because it would look with the snapshot of that statement. So this is volatile.
CREATE FUNCTION pgqueue_fold_steps_v1(p_job bigint, p_outcome text) RETURNS jsonb
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT jsonb_agg(
        CASE WHEN p_outcome = 'done' THEN to_jsonb(step) - 'job_id' - 'inputs' - 'result'
            ELSE to_jsonb(step) - 'job_id' END
        ORDER BY step.finished_at, step.name)
    FROM pgqueue_step AS step WHERE step.job_id = p_job
$$;
