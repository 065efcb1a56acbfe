-- Jobs that sleep in a step and are run now go on: their sleep is over. Waits for an event are not.
CREATE FUNCTION pgqueue_wake_steps_v1(p_ids bigint[]) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    UPDATE pgqueue_step AS step SET wake_at = clock_timestamp()
    WHERE step.job_id = ANY (p_ids) AND step.kind = 'sleep' AND step.finished_at IS NULL
$$;
