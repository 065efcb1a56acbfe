-- The jobs that wait for others, for maintenance. A statement that is to use it repeats the whole predicate.
CREATE INDEX pgqueue_job_waits ON pgqueue_job_live (id)
    WHERE status = 'blocked' AND starts_with(waiting_reason, 'waits for job');
