-- Internal. How large a job may be that a role enqueues which may only enqueue, in one row. A worker that starts writes
-- MAX_JSON_BYTES here (_pgqueue_retain_bound): what the caller passes as its limit is its own affair.
CREATE TABLE pgqueue_bound (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    max_json_bytes integer NOT NULL DEFAULT 1048576 CHECK (max_json_bytes >= 0)
);

INSERT INTO pgqueue_bound DEFAULT VALUES;
