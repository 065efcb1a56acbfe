-- Whether a job that is about to wait for an event has it by now. Race: the event may have come after the task asked for
-- it. The finish that lets the job wait has locked the row of the job, which every event locks first, so it is seen here.
CREATE FUNCTION pgqueue_has_event_v1(p_job bigint, p_name text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (
        SELECT FROM pgqueue_step AS step
        WHERE step.job_id = p_job AND step.name = p_name AND step.finished_at IS NOT NULL)
$$;
