-- The live leaf: every job that is not over. Small and hot: each job is inserted, updated once or
-- twice and deleted, so free space is left on the pages and vacuum comes early and at full speed.
CREATE TABLE pgqueue_job_live PARTITION OF pgqueue_job (
    PRIMARY KEY (id),
    CONSTRAINT pgqueue_job_live_status CHECK (status IN ('pending', 'retry', 'running', 'blocked')),
    -- Rows that no worker would look at: better refused than never run.
    CONSTRAINT pgqueue_job_live_queue CHECK (priority BETWEEN -100 AND 100 AND queue_name <> ''),
    -- Times that Python cannot read.
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
