-- Internal. The tasks of the project, with the policy that enqueue() would give their jobs. The processes that can
-- import a task write its row (maintenance/payloads.py); pgqueue_enqueue reads it for calls from SQL, and the trigger
-- of a payload table for each INSERT. Maintenance goes through payloads in the order of the ids, and has come to
-- `swept_to`.
CREATE TABLE pgqueue_task (
    task_path varchar(255) PRIMARY KEY,
    queue_name varchar(100) NOT NULL,
    priority smallint NOT NULL,
    max_attempts integer,
    timeout integer,
    on_lost varchar(8),
    expires_after double precision,
    metadata jsonb NOT NULL DEFAULT '{}',
    limit_name varchar(200),    -- of its jobs, or of their keys; NULL: no limit
    unique_options jsonb,       -- with the key, if that is fixed; NULL: not unique
    computed_keys jsonb NOT NULL DEFAULT '[]',  -- the options that only the code of the task can compute from a call
    -- If its calls are rows of a table of their own
    model varchar(255),         -- app_label.ModelName
    relation regclass,          -- NULL: no such table yet
    limit_column varchar(63),   -- limit_name is that of its keys
    group_column varchar(63),
    keeps boolean NOT NULL DEFAULT false,
    swept_to bigint NOT NULL DEFAULT 0
);
