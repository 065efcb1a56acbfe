-- The logical table of jobs. A job is on one shelf: 0 is the live leaf, 1 to 8 are the ring of history, and 9
-- keeps jobs that must outlive the ring. The id comes from a sequence, because partitioned tables have identity
-- columns only from PostgreSQL 17 on. Only the functions that move jobs copy an id from leaf to leaf. So the id
-- is unique in the whole table, although each leaf has its own primary key.
--
-- The order of the columns saves WAL. What the claim writes (status to waiting_reason) stands together: if the new
-- version of a row fits on the page of the old one, the WAL contains only what lies between the first and the last
-- byte that differ. The columns of fixed length come first because they need no padding there.
CREATE SEQUENCE pgqueue_job_id_seq;

CREATE TABLE pgqueue_job (
    id bigint NOT NULL DEFAULT nextval('pgqueue_job_id_seq'),
    shelf smallint NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 0,
    crash_count smallint NOT NULL DEFAULT 0,
    lost_in_a_row smallint NOT NULL DEFAULT 0,
    run_after timestamptz NOT NULL DEFAULT clock_timestamp(),
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    forgiven_attempts integer NOT NULL DEFAULT 0,
    max_attempts integer,
    timeout integer,
    wait_position bigint,
    batch bigint,
    -- What has to be settled when the job has finished (settle_v1.sql): 1 it has steps, 2 others wait for it,
    -- 4 it is a member of a batch, 8 it has progress.
    marks smallint NOT NULL DEFAULT 0,
    -- A column of its own, and not a condition of statements: as a parameter, the index knows it.
    is_grouped boolean NOT NULL GENERATED ALWAYS AS (group_key IS NOT NULL) STORED,
    -- Compared byte by byte, so that the keys of one limit stand together in the index, whatever the locale.
    limit_key varchar(200) COLLATE "C",
    -- Compared byte by byte, as workers do when they go through the groups in turn.
    group_key varchar(200) COLLATE "C",
    queue_name varchar(100) NOT NULL DEFAULT 'default',
    task_path varchar(255) NOT NULL,
    args jsonb NOT NULL DEFAULT '[]',
    kwargs jsonb NOT NULL DEFAULT '{}',
    metadata jsonb NOT NULL DEFAULT '{}',
    on_lost varchar(8),
    unique_key varchar(200),
    unique_scope varchar(8),
    context jsonb,
    parents bigint[],  -- the jobs and batches that it was enqueued after
    expires_at timestamptz,
    status varchar(16) NOT NULL DEFAULT 'pending',
    attempts integer NOT NULL DEFAULT 0,
    worker bigint,
    lease bigint,
    started_at timestamptz,
    last_attempted_at timestamptz,
    deadline timestamptz,
    waiting_reason varchar(500) NOT NULL DEFAULT '',
    cancel_requested_at timestamptz,
    finished_at timestamptz,
    duration double precision,
    result jsonb,
    steps jsonb,  -- only when the job has finished: before, they are in pgqueue_step
    errors jsonb NOT NULL DEFAULT '[]',
    error_fingerprint varchar(40) NOT NULL DEFAULT '',
    current_step varchar(100) NOT NULL DEFAULT '',
    logs jsonb
) PARTITION BY LIST (shelf);

ALTER SEQUENCE pgqueue_job_id_seq OWNED BY pgqueue_job.id;
