-- How a job that is not live has ended (pgqueue_why), or that there is none.
CREATE FUNCTION _pgqueue_why_over(p_id bigint, OUT code text, OUT facts jsonb)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(min(job.status), 'unknown'), coalesce(jsonb_agg(jsonb_build_object(
        'task_path', job.task_path, 'queue_name', job.queue_name, 'ended_at', job.finished_at, 'attempts', job.attempts,
        'reason', nullif(job.waiting_reason, ''), 'asked_to_cancel_at', job.cancel_requested_at,
        'error', _pgqueue_why_error(job.errors))) -> 0, '{}')
    FROM pgqueue_job AS job WHERE job.id = p_id AND job.shelf <> 0
$$;

-- What a running job is doing (pgqueue_why): it runs, it was asked to stop, or its worker is lost. The ids of workers
-- are text, because a program that reads JSON numbers as floats would round them.
CREATE FUNCTION _pgqueue_why_running(
    p_job pgqueue_job_live, p_now timestamptz, p_lease double precision, OUT code text, OUT facts jsonb
) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE
            WHEN worker.id IS NULL OR worker.heartbeat_at < p_now - p_lease * interval '1 second' THEN 'worker_lost'
            WHEN p_job.cancel_requested_at IS NOT NULL THEN 'cancel_requested'
            ELSE 'running' END,
        jsonb_build_object(
            'attempt', p_job.attempts, 'since', p_job.last_attempted_at, 'deadline', p_job.deadline,
            'asked_to_cancel_at', p_job.cancel_requested_at, 'step', nullif(p_job.current_step, ''),
            'worker', jsonb_build_object(
                'id', p_job.worker::text, 'host', worker.host, 'pid', worker.pid, 'heartbeat_at', worker.heartbeat_at),
            'progress', (
                SELECT jsonb_build_object('done', told.done, 'total', told.total, 'note', nullif(told.note, ''))
                FROM pgqueue_progress AS told WHERE told.job_id = p_job.id AND p_job.marks & 8 <> 0))
    FROM (SELECT) AS one LEFT JOIN pgqueue_worker AS worker ON worker.id = p_job.worker
$$;
