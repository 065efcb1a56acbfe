-- Internal. The position of the ring of history, in one row. A finish reads `current`, and maintenance changes it.
CREATE TABLE pgqueue_ring (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    current smallint NOT NULL DEFAULT 1 CHECK (current BETWEEN 1 AND 8),
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    retention interval NOT NULL DEFAULT '7 days' CHECK (retention >= interval '0'),
    failed_retention interval NOT NULL DEFAULT '30 days' CHECK (failed_retention >= interval '0')
);

INSERT INTO pgqueue_ring DEFAULT VALUES;
