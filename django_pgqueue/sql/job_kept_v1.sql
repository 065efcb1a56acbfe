-- The kept leaf: failed jobs, and jobs of queues with their own retention. It is emptied in batches
-- (pgqueue_sweep_v1), for which the index has one range for each queue and status.
CREATE TABLE pgqueue_job_kept PARTITION OF pgqueue_job (
    PRIMARY KEY (id),
    CONSTRAINT pgqueue_job_kept_over CHECK (
        status NOT IN ('pending', 'retry', 'running', 'blocked') AND finished_at IS NOT NULL
    )
) FOR VALUES IN (9);
