-- The jobs that wait because their task is paused. A statement that is to use it repeats the whole predicate.
CREATE INDEX pgqueue_job_paused ON pgqueue_job_live (task_path, id)
    WHERE status = 'blocked' AND starts_with(waiting_reason, 'paused');
