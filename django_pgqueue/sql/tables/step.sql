-- Internal. What a live job has recorded of its steps, sleeps and signals. When the job has finished, they move to its
-- row in history (_pgqueue_fold_steps). Rows come and go with each job, so the table is vacuumed by their number.
CREATE TABLE pgqueue_step (
    job_id bigint NOT NULL,
    name varchar(100) NOT NULL,
    kind varchar(8) NOT NULL DEFAULT 'step',
    attempt integer NOT NULL DEFAULT 0,
    seconds double precision,
    wake_at timestamptz,
    finished_at timestamptz,
    inputs bigint,
    result jsonb,
    PRIMARY KEY (job_id, name),
    CONSTRAINT pgqueue_step_kind CHECK (kind IN ('step', 'sleep', 'event', 'timeout'))
) WITH (
    fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
