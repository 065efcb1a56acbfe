-- The live leaf: every job that is not over. It is small and changes often: each job is inserted, updated once or
-- twice, and deleted. So pages keep free space, and vacuum runs early and at full speed.
CREATE TABLE pgqueue_job_live PARTITION OF pgqueue_job (
    PRIMARY KEY (id),
    CONSTRAINT pgqueue_job_live_status CHECK (status IN ('pending', 'retry', 'running', 'blocked')),
    -- No worker would read other rows, so they are refused.
    CONSTRAINT pgqueue_job_live_queue CHECK (priority BETWEEN -100 AND 100 AND queue_name <> ''),
    -- Python cannot read other times.
    CONSTRAINT pgqueue_job_live_times CHECK (
        run_after BETWEEN '0001-01-02 UTC' AND '9999-12-30 UTC'
        AND expires_at BETWEEN '0001-01-02 UTC' AND '9999-12-30 UTC'
    )
) FOR VALUES IN (0) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_analyze_threshold = 5000
);
