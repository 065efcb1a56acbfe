-- Internal. Who waits for whom. The parent is a job or a batch: their ids come from one sequence. An edge goes when its
-- parent ends in a way that is final for the child; that of a failed parent stays, for a child that holds. Rows come
-- and go with each job, so the table is vacuumed by their number.
CREATE TABLE pgqueue_edge (
    parent_id bigint NOT NULL,
    child_id bigint NOT NULL,
    if_failed varchar(6) NOT NULL DEFAULT 'hold',
    -- The parent has ended so, but what this means for the child was left to maintenance (_pgqueue_settle).
    overdue varchar(16),
    PRIMARY KEY (parent_id, child_id),
    CONSTRAINT pgqueue_edge_if_failed CHECK (if_failed IN ('hold', 'cancel', 'run'))
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
-- The edges of a child, the youngest parent first: it probably ends last. No other index has this order, so that a
-- planner that expects edges of a child everywhere does not search the whole table for the first one: ORDER BY
-- -parent_id LIMIT 1.
CREATE INDEX pgqueue_edge_child ON pgqueue_edge (child_id, (-parent_id));
CREATE INDEX pgqueue_edge_overdue ON pgqueue_edge (parent_id) WHERE overdue IS NOT NULL;

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
-- The batches that maintenance looks at: whether they have to end, and whether they are old enough to be deleted.
CREATE INDEX pgqueue_batch_live ON pgqueue_batch (id) WHERE finished_at IS NULL;
CREATE INDEX pgqueue_batch_over ON pgqueue_batch (finished_at) WHERE finished_at IS NOT NULL;

-- Internal. How many members a batch has, and how they ended: the sum over its slots. Several sessions count members of
-- one batch at once, so each takes a slot that no other session has locked, or adds one (_pgqueue_count).
CREATE TABLE pgqueue_tally (
    batch_id bigint NOT NULL,
    slot bigint NOT NULL,
    added integer NOT NULL DEFAULT 0,
    done integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    cancelled integer NOT NULL DEFAULT 0,
    PRIMARY KEY (batch_id, slot)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
