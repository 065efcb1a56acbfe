-- Internal. What one session at a time may do, of all supervisors and workers: whoever has locked the row does it
-- (_pgqueue_on_duty). Every role that may connect can take an advisory lock, and look up in pg_locks which ones are
-- taken. A row can be locked only by roles that may change it.
CREATE TABLE pgqueue_duty (name varchar(32) PRIMARY KEY);

INSERT INTO pgqueue_duty (name) VALUES
    ('alerts'), ('batches'), ('depth'), ('edges'), ('failures'), ('kept'), ('lines'), ('recover'), ('ring'),
    ('schedules'), ('statistics'), ('unpause');

-- Internal. The name and the number of this database among the databases that share the jobs (_pgqueue_name_shard).
CREATE TABLE pgqueue_shard (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    name varchar(43) COLLATE "C" NOT NULL CHECK (name <> ''),
    number integer NOT NULL CHECK (number BETWEEN 0 AND 511),
    is_draining boolean NOT NULL DEFAULT false
);

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
    search jsonb,               -- its indexed arguments: names, and their places or null; NULL: none
    -- If its calls are rows of a table of their own
    model varchar(255),         -- app_label.ModelName
    relation regclass,          -- NULL: no such table yet
    limit_column varchar(63),   -- limit_name is that of its keys
    group_column varchar(63),
    keeps boolean NOT NULL DEFAULT false,
    swept_to bigint NOT NULL DEFAULT 0
);

-- Internal. Payloads that have no job and never had one, because they were written without triggers, as restores and
-- replication do (session_replication_role = replica). Maintenance does not delete them, and forgets here payloads
-- that are gone or have a job.
CREATE TABLE pgqueue_stray (
    relation regclass NOT NULL,
    job_id bigint NOT NULL,
    PRIMARY KEY (relation, job_id)
);

-- Internal. The calls that other databases have handed over to this one (relay.sql), with the job that each has become.
-- A call is known by the job that hands it over and by a token that is drawn with it, and not by the name of its
-- database: two projects may call theirs the same, and a database that is restored from a backup gives its ids again.
-- Maintenance deletes a row after seven days: no attempt of a hand-over goes on that long.
CREATE TABLE pgqueue_received (
    id bigint NOT NULL,  -- of the job of the relay, in its database
    token uuid NOT NULL,
    job bigint,          -- here; NULL: the call was cancelled before it came
    asked_at timestamptz,  -- when the attempt that has handed it over began, or it was cancelled, by the clock there
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (id, token)
);

CREATE INDEX pgqueue_received_at ON pgqueue_received (received_at);

-- Internal. The state of each rate: when all starts so far are paid for, so that the whole burst is allowed again. A
-- row is updated with each start, so each page keeps room for a new version of its rows.
CREATE TABLE pgqueue_rate (
    key varchar(200) COLLATE "C" PRIMARY KEY,
    tat timestamptz NOT NULL
) WITH (fillfactor = 50);

-- How many jobs were live at a moment of each minute, in each queue that had any, and in all queues together, whose
-- name is empty and whose row is there even if there were none. A supervisor counts them (_pgqueue_count_depth). After
-- two days, one row for each quarter of an hour is left.
CREATE TABLE pgqueue_depth (
    queue_name varchar(100) COLLATE "C" NOT NULL,
    minute timestamptz NOT NULL,
    ready bigint NOT NULL DEFAULT 0,
    scheduled bigint NOT NULL DEFAULT 0,
    retrying bigint NOT NULL DEFAULT 0,
    running bigint NOT NULL DEFAULT 0,
    blocked bigint NOT NULL DEFAULT 0,
    oldest_ready double precision,  -- how many seconds the oldest ready job had been due; NULL: none was ready
    versions text[],  -- of the workers then, in the row of all queues together; NULL: there was no worker
    PRIMARY KEY (queue_name, minute)
);

-- The sums of minutes: by quarter of an hour, hour and day, and in total, for each queue and task. A chart of all tasks
-- would have to add up many rows, so there are sums of each queue as well, whose task is empty, and of all queues
-- together, whose queue is empty, too; both also of single minutes.
-- The rows of the current hour are changed every minute, so pages keep room for the new versions.
CREATE TABLE pgqueue_stat_rollup (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    span varchar(8) NOT NULL,
    start timestamptz NOT NULL,
    queue_name varchar(100) NOT NULL,
    task_path varchar(255) NOT NULL,
    done bigint NOT NULL,
    failed bigint NOT NULL,
    retried bigint NOT NULL,
    cancelled bigint NOT NULL,
    wait_histogram bigint[] NOT NULL,
    run_histogram bigint[] NOT NULL,
    wait_seconds double precision NOT NULL,
    run_seconds double precision NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pgqueue_stat_rollup_key UNIQUE (span, start, queue_name, task_path)
) WITH (fillfactor = 70);

-- Internal. Failed attempts that are not in the groups yet, one row for each report and kind of failure. Rows are only
-- added, so workers that report failures of the same group never wait for each other. Maintenance takes the rows every
-- few seconds (_pgqueue_fold_failures), so the table stays short, and vacuum runs early and at full speed.
CREATE TABLE pgqueue_failure_note (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    fingerprint varchar(40) NOT NULL,
    task_path varchar(255) NOT NULL,
    queue_name varchar(100) NOT NULL,
    version varchar(50) NOT NULL,
    failed integer NOT NULL,
    retried integer NOT NULL,
    job_id bigint NOT NULL,
    error_class varchar(255) NOT NULL,
    message varchar(500) NOT NULL,
    traceback text NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
