-- The lines: the jobs of each limit key that wait, in each queue in the order in which they start.
CREATE INDEX pgqueue_job_line ON pgqueue_job_live (limit_key, queue_name, priority DESC, wait_position)
    WHERE status IN ('pending', 'retry', 'blocked') AND wait_position IS NOT NULL;
