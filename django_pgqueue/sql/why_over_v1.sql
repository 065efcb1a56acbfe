-- How a job that is not live has ended (why.sql), or that there is none.
CREATE FUNCTION pgqueue_why_over_v1(p_id bigint, OUT code text, OUT facts jsonb)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(min(job.status), 'unknown'), coalesce(jsonb_agg(jsonb_build_object(
        'task_path', job.task_path, 'queue_name', job.queue_name, 'ended_at', job.finished_at, 'attempts', job.attempts,
        'reason', nullif(job.waiting_reason, ''), 'asked_to_cancel_at', job.cancel_requested_at,
        'error', pgqueue_why_error_v1(job.errors))) -> 0, '{}')
    FROM pgqueue_job AS job WHERE job.id = p_id AND job.shelf <> 0
$$;
