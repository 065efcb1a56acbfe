-- How far live jobs are that have reported it. Each job has at most one row, which changes once a second at most, and
-- goes when the job has finished (_pgqueue_settle). It is not a column of the job: each new version of a job in the
-- live leaf costs five times as much, and stands in the way of claims as long as a snapshot keeps it.
CREATE TABLE pgqueue_progress (
    job_id bigint NOT NULL PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    done double precision NOT NULL,
    total double precision,
    note varchar(200) NOT NULL DEFAULT '',
    -- The greatest is 2^53. NaN is greater than every number.
    CONSTRAINT pgqueue_progress_numbers CHECK (
        done BETWEEN 0 AND 9007199254740992 AND total BETWEEN 0 AND 9007199254740992)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
