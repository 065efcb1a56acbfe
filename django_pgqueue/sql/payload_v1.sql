-- The tasks whose calls are rows of a table of their own, with the policy that enqueue() would give their jobs. The
-- processes that can import a task write its row (payloads/synchronize.py); the trigger of the table reads it for each
-- INSERT. Maintenance goes through the table in the order of the ids, and has come to `swept_to`.
CREATE TABLE pgqueue_payload (
    task_path varchar(255) PRIMARY KEY,
    model varchar(255) NOT NULL,  -- app_label.ModelName
    relation regclass NOT NULL,
    queue_name varchar(100) NOT NULL,
    priority smallint NOT NULL,
    max_attempts integer,
    timeout integer,
    on_lost varchar(8),
    expires_after double precision,
    metadata jsonb NOT NULL DEFAULT '{}',
    limit_name varchar(200),    -- of its jobs, or of the keys in limit_column
    limit_column varchar(63),
    group_column varchar(63),
    keeps boolean NOT NULL DEFAULT false,
    swept_to bigint NOT NULL DEFAULT 0
);
