-- The running jobs of each limit key: those that hold its slots.
CREATE INDEX pgqueue_job_slot ON pgqueue_job_live (limit_key)
    WHERE status = 'running' AND limit_key IS NOT NULL;
