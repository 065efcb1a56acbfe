-- Why a job waits for a time (why.sql): for a sleep or an event, for a worker that knows its task, for its next attempt,
-- because it was snoozed or put back, or because it was enqueued for later. An attempt that failed has left an error that
-- is younger than the claim of the attempt.
CREATE FUNCTION pgqueue_why_later_v1(p_job pgqueue_job_live, OUT code text, OUT facts jsonb)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE
            WHEN step.kind = 'event' THEN 'event'
            WHEN step.kind = 'sleep' THEN 'sleeping'
            WHEN pgqueue_why_is_unknown_v1(p_job.waiting_reason) THEN 'unknown_task'
            WHEN p_job.waiting_reason <> '' THEN 'put_back'
            WHEN failed.now THEN 'retry'
            WHEN p_job.started_at IS NOT NULL THEN 'snoozed'
            ELSE 'scheduled' END,
        jsonb_build_object(
            'step', step.name, 'reason', nullif(p_job.waiting_reason, ''), 'attempts', p_job.attempts,
            'max_attempts', p_job.max_attempts + p_job.forgiven_attempts,
            'error', CASE WHEN failed.now THEN pgqueue_why_error_v1(p_job.errors) END)
    FROM (SELECT coalesce(
        (p_job.errors -> -1 ->> 'finished_at')::timestamptz >= p_job.last_attempted_at, false) AS now) AS failed
    LEFT JOIN pgqueue_step AS step ON step.job_id = p_job.id AND step.name = p_job.current_step
        AND step.finished_at IS NULL AND p_job.marks & 1 <> 0
$$;
