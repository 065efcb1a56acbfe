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
-- Those of a child, the youngest parent first: it probably ends last. No other index has this order, so that a planner
-- that expects edges of a child everywhere does not look for the first one in the whole table: ORDER BY -parent_id
-- LIMIT 1.
CREATE INDEX pgqueue_edge_child ON pgqueue_edge (child_id, (-parent_id));
CREATE INDEX pgqueue_edge_overdue ON pgqueue_edge (parent_id) WHERE overdue IS NOT NULL;
