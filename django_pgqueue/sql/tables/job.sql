CREATE SEQUENCE pgqueue_job_id_seq;

-- The logical table of jobs. A job is on one shelf: 0 is the live leaf, 1 to 8 are the ring of history, and 9
-- keeps jobs that must outlive the ring. The id comes from a sequence, because partitioned tables have identity
-- columns only from PostgreSQL 17 on. Only the functions that move jobs copy an id from leaf to leaf, so the id
-- is unique in the whole table, although each leaf has its own primary key.
--
-- The order of the columns saves WAL. What the claim writes (status to waiting_reason) stands together: if the new
-- version of a row fits on the page of the old one, the WAL contains only what lies between the first and the last
-- byte that differ. The columns of fixed length come first because they need no padding there.
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
    -- What has to be settled when the job has finished (_pgqueue_settle): 1 it has steps, 2 others wait for it,
    -- 4 it is a member of a batch, 8 it has progress.
    marks smallint NOT NULL DEFAULT 0,
    -- A column of its own, and not a condition of statements: as a parameter, the index knows it.
    is_grouped boolean NOT NULL GENERATED ALWAYS AS (group_key IS NOT NULL) STORED,
    tenant varchar(63) COLLATE "C",  -- whose job it is; NULL: it has no tenant
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
    searched text[],  -- the arguments that are indexed, such as order_id=17; NULL: none, as with most tasks
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

-- Let the sequence of the jobs belong to a column that has no values of it. It is dropped and restarted with the table,
-- but loaddata sets a sequence to the greatest value of the column that owns it, although the ids of batches
-- may be greater, and the ids of jobs that are no longer kept (keep_sequence_ahead in models/job.py).
ALTER SEQUENCE pgqueue_job_id_seq OWNED BY pgqueue_job.shelf;

-- The live leaf: every job that is not over. It is small and changes often: each job is inserted, updated once or
-- twice, and deleted, so pages keep free space, and vacuum runs early and at full speed.
CREATE TABLE pgqueue_job_live PARTITION OF pgqueue_job (
    PRIMARY KEY (id),
    CONSTRAINT pgqueue_job_live_status CHECK (status IN ('pending', 'retry', 'running', 'blocked')),
    -- No worker would read other rows, so they are refused.
    CONSTRAINT pgqueue_job_live_queue CHECK (priority BETWEEN -100 AND 100 AND queue_name <> ''),
    -- Python cannot read other times.
    CONSTRAINT pgqueue_job_live_times CHECK (
        run_after BETWEEN '0001-01-02 UTC' AND '9999-12-30 UTC'
        AND expires_at BETWEEN '0001-01-02 UTC' AND '9999-12-30 UTC'
    )
) FOR VALUES IN (0) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_analyze_threshold = 5000
);

-- The ring of history. Finished jobs move to the current shelf. The ring turns (_pgqueue_rotate), and the
-- oldest shelf is emptied by TRUNCATE, so that history needs no DELETE and no vacuum.
DO $$
BEGIN
    FOR shelf IN 1..8 LOOP
        EXECUTE format(
            'CREATE TABLE pgqueue_job_past_%s PARTITION OF pgqueue_job (
                PRIMARY KEY (id),
                CONSTRAINT pgqueue_job_past_%1$s_over CHECK (
                    status NOT IN (''pending'', ''retry'', ''running'', ''blocked'') AND finished_at IS NOT NULL
                )
            ) FOR VALUES IN (%1$s) WITH (autovacuum_vacuum_insert_threshold = -1)', shelf);
        EXECUTE format(
            'CREATE INDEX pgqueue_job_past_%1$s_finished ON pgqueue_job_past_%1$s (finished_at);
             CREATE INDEX pgqueue_job_past_batch_%1$s ON pgqueue_job_past_%1$s (batch, id) WHERE batch IS NOT NULL',
            shelf);
    END LOOP;
END $$;

-- The kept leaf: failed jobs, and jobs of queues with their own retention. It is emptied in batches
-- (_pgqueue_sweep), for which the index has one range for each queue and status.
CREATE TABLE pgqueue_job_kept PARTITION OF pgqueue_job (
    PRIMARY KEY (id),
    CONSTRAINT pgqueue_job_kept_over CHECK (
        status NOT IN ('pending', 'retry', 'running', 'blocked') AND finished_at IS NOT NULL
    )
) FOR VALUES IN (9);

-- The names of the states of a job, as a table, for people, reports and other tools. No foreign key references
-- it, and no function on the hot path reads it.
CREATE TABLE pgqueue_status (
    status varchar(16) PRIMARY KEY,
    is_claimable boolean NOT NULL,
    is_terminal boolean NOT NULL
);

INSERT INTO pgqueue_status (status, is_claimable, is_terminal) VALUES
    ('pending', true, false),
    ('retry', true, false),
    ('running', false, false),
    ('blocked', false, false),
    ('done', false, true),
    ('failed', false, true),
    ('cancelled', false, true);

-- Internal. The position of the ring of history, and the settings of the worker that started last (_pgqueue_retain), in
-- one row. A finish reads `current`, and maintenance changes it. max_json_bytes is how large the jobs of a role may be
-- that may only enqueue: what the caller passes as its limit is its own affair.
CREATE TABLE pgqueue_ring (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    current smallint NOT NULL DEFAULT 1 CHECK (current BETWEEN 1 AND 8),
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    retention interval NOT NULL DEFAULT '7 days' CHECK (retention >= interval '0'),
    failed_retention interval NOT NULL DEFAULT '30 days' CHECK (failed_retention >= interval '0'),
    max_json_bytes integer NOT NULL DEFAULT 1048576 CHECK (max_json_bytes >= 0)
);

INSERT INTO pgqueue_ring DEFAULT VALUES;

-- Internal. Which jobs maintenance has let go when their retention ended: none below first_id and none above
-- last_id. A payload outside of this range that has no job never had one (_pgqueue_sweep_payloads). One row, or none if
-- no job is gone yet.
CREATE TABLE pgqueue_gone (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    first_id bigint NOT NULL,
    last_id bigint NOT NULL
);

-- The tenant of each database role that may see and enqueue only the jobs of one tenant (manage.py pgqueue tenants). A
-- role reads its own tenant with pgqueue_tenant().
CREATE TABLE pgqueue_tenant_role (
    role name PRIMARY KEY,
    tenant varchar(63) COLLATE "C" NOT NULL CHECK (tenant ~ '^[A-Za-z0-9_.-]+$')
);

-- Internal. A marked job that has finished, as _pgqueue_settle takes it.
CREATE TYPE pgqueue_ended AS (id bigint, outcome text, marks smallint, batch bigint);

-- Internal. An attempt that failed, as _pgqueue_note_failures takes it. is_final: its job failed, too.
CREATE TYPE pgqueue_failed AS (
    id bigint, task_path text, queue_name text, fingerprint text, is_final boolean, error jsonb
);

-- Internal. The windows of unique keys: until when a key is taken by the job that was enqueued with it, whatever became
-- of that job. One row for each key. Maintenance deletes windows that have ended, oldest first.
CREATE TABLE pgqueue_window (
    unique_key varchar(200) PRIMARY KEY,
    job_id bigint NOT NULL,
    until timestamptz NOT NULL
);

CREATE INDEX pgqueue_window_until ON pgqueue_window (until);

-- Internal. What a live job has recorded of its steps, sleeps and signals. When the job has finished, they move to its
-- row in history (_pgqueue_fold_steps). Rows come and go with each job, so the table is vacuumed by their number.
CREATE TABLE pgqueue_step (
    job_id bigint NOT NULL,
    name varchar(100) NOT NULL,
    kind varchar(8) NOT NULL DEFAULT 'step',
    attempt integer NOT NULL DEFAULT 0,
    seconds double precision,
    wake_at timestamptz,
    finished_at timestamptz,
    inputs bigint,
    result jsonb,
    PRIMARY KEY (job_id, name),
    CONSTRAINT pgqueue_step_kind CHECK (kind IN ('step', 'sleep', 'event', 'timeout'))
) WITH (
    fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- How far live jobs are that have reported it. Each job has at most one row, which changes once a second at most, and
-- goes when the job has finished (_pgqueue_settle). It is not a column of the job: each new version of a job in the
-- live leaf costs five times as much, and stands in the way of claims as long as a snapshot keeps it.
CREATE TABLE pgqueue_progress (
    job_id bigint NOT NULL PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    done double precision NOT NULL,
    total double precision,
    note varchar(200) NOT NULL DEFAULT '',
    -- The greatest is 2^53. NaN is greater than every number.
    CONSTRAINT pgqueue_progress_numbers CHECK (
        done BETWEEN 0 AND 9007199254740992 AND total BETWEEN 0 AND 9007199254740992)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- The stacks of running jobs for which someone has asked (pgqueue_request_stack), until a day later. A worker writes
-- taken_at and lines. Who asks again gets a new one in the same row.
CREATE TABLE pgqueue_stack (
    job_id bigint NOT NULL PRIMARY KEY,
    lease bigint NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    taken_at timestamptz,
    at_end boolean NOT NULL DEFAULT false,  -- whether its process ended then
    lines text NOT NULL DEFAULT ''
);
