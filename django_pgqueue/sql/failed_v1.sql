-- An attempt that failed, as pgqueue_note_failures_v1 takes it. is_final: its job failed, too.
CREATE TYPE pgqueue_failed_v1 AS (
    id bigint, task_path text, queue_name text, fingerprint text, is_final boolean, error jsonb
);
