-- Give jobs that come back from history their steps again, so that they go on at the step that failed. A wait that ended
-- without its event begins again. A done job has no results of its steps, and starts from the beginning.
CREATE FUNCTION pgqueue_unfold_steps_v1(p_ids bigint[], p_steps jsonb[]) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO pgqueue_step (job_id, name, kind, attempt, seconds, wake_at, finished_at, inputs, result)
    SELECT back.id, step.name, step.kind, step.attempt, step.seconds, step.wake_at, step.finished_at, step.inputs,
        nullif(step.result, 'null')
    FROM unnest(p_ids, p_steps) AS back (id, steps)
    CROSS JOIN LATERAL jsonb_to_recordset(back.steps) AS step (
        name text, kind text, attempt integer, seconds double precision, wake_at timestamptz,
        finished_at timestamptz, inputs bigint, result jsonb)
    WHERE step.kind <> 'timeout'
$$;
