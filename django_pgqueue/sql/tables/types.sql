-- Internal. A marked job that is over, as _pgqueue_settle takes it.
CREATE TYPE pgqueue_ended AS (id bigint, outcome text, marks smallint, batch bigint);

-- Internal. An attempt that failed, as _pgqueue_write_failures takes it. is_final: its job failed, too.
CREATE TYPE pgqueue_failed AS (
    id bigint, task_path text, queue_name text, fingerprint text, is_final boolean, error jsonb
);
