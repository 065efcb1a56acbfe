-- Internal. How many members a batch has, and how they ended: the sum over its slots. Several sessions count members of
-- one batch at once, so each takes a slot that nobody else has locked, or adds one (_pgqueue_count).
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
