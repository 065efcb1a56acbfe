-- Batches: jobs that others can wait for together. The ids come from the sequence of the jobs, so that a parent may be
-- either. How many members there are and how they ended is in pgqueue_tally.
CREATE TABLE pgqueue_batch (
    id bigint PRIMARY KEY DEFAULT nextval('pgqueue_job_id_seq'),
    name varchar(200) NOT NULL DEFAULT '',
    is_open boolean NOT NULL DEFAULT true,  -- more members are expected, so it does not end
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    cancel_requested_at timestamptz,
    finished_at timestamptz,
    outcome varchar(16) NOT NULL DEFAULT '',
    CONSTRAINT pgqueue_batch_outcome CHECK (
        outcome IN ('', 'done', 'failed', 'cancelled') AND (finished_at IS NULL) = (outcome = ''))
);
-- Those that maintenance looks at: whether they have to end, and whether they are old enough to be deleted.
CREATE INDEX pgqueue_batch_live ON pgqueue_batch (id) WHERE finished_at IS NULL;
CREATE INDEX pgqueue_batch_over ON pgqueue_batch (finished_at) WHERE finished_at IS NOT NULL;
