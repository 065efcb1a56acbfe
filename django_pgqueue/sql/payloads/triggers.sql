-- After an INSERT into a payload table: make the jobs of the new rows. The arguments are the path of the task, and its
-- earlier paths, which count as the same (_pgqueue_attach_payload). A row whose job exists was inserted by enqueue(),
-- after its job. Any other job is refused, and so is a number that does not come from the sequence: a later job would
-- get it, too. In this way the key tells whose job it is, as a foreign key would.
--
-- Without the column of its key or group, as after a rename, a row is refused: its job would have no limit.
--
-- The ids are compared with an array. A join of the transition table with the root took 5 ms a row.
--
-- Race: a retry may move a job with such an id from history to the live leaf between the two looks. Then the INSERT
-- below violates its primary key, and nothing was inserted.
CREATE FUNCTION _pgqueue_payload_insert() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ids bigint[];
    known bigint[];
    other record;
    kind pgqueue_task;
    now timestamptz;
    stranger bigint;
BEGIN
    SELECT array_agg(given.job_id) INTO ids FROM new_rows AS given;
    IF ids IS NULL THEN
        RETURN NULL;  -- the statement has inserted nothing
    END IF;
    known := ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (ids) AND job.task_path = ANY (TG_ARGV));
    IF cardinality(known) = cardinality(ids) THEN
        RETURN NULL;
    END IF;
    SELECT job.id, job.task_path, job.shelf INTO other
    FROM pgqueue_job AS job WHERE job.id = ANY (ids) AND job.id <> ALL (known) ORDER BY job.id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'pgqueue: job % cannot have a row in %: %', other.id, TG_TABLE_NAME,
            CASE WHEN other.task_path = ANY (TG_ARGV) THEN 'it is over'
                ELSE format('it is a job of %s, not of %s', other.task_path, TG_ARGV[0]) END
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'pgqueue_payload_job', TABLE = TG_TABLE_NAME,
                SCHEMA = TG_TABLE_SCHEMA, COLUMN = 'job_id',
                HINT = 'Leave job_id out: the row gets a new job. To run a finished job again, use retry().';
    END IF;
    SELECT max(given.id) INTO stranger FROM unnest(ids) AS given (id);
    IF stranger > (SELECT sequence.last_value FROM pgqueue_job_id_seq AS sequence) THEN
        RAISE EXCEPTION 'pgqueue: job_id % in % does not come from the sequence pgqueue_job_id_seq', stranger,
            TG_TABLE_NAME
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'pgqueue_payload_job', TABLE = TG_TABLE_NAME,
                SCHEMA = TG_TABLE_SCHEMA, COLUMN = 'job_id', HINT = 'Leave job_id out: the row gets a new job.';
    END IF;
    SELECT declared.* INTO kind FROM pgqueue_task AS declared
    WHERE declared.task_path = ANY (TG_ARGV) ORDER BY array_position(TG_ARGV, declared.task_path::text) LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: the task % of % is not declared in this database', TG_ARGV[0], TG_TABLE_NAME
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'pgqueue_payload_task', TABLE = TG_TABLE_NAME,
                SCHEMA = TG_TABLE_SCHEMA,
                HINT = 'Run manage.py migrate, or start a worker, with the code that declares the task.';
    END IF;
    now := clock_timestamp();
    IF kind.limit_column IS NULL AND kind.group_column IS NULL THEN
        INSERT INTO pgqueue_job_live (
            id, task_path, queue_name, priority, run_after, enqueued_at, expires_at, max_attempts, timeout, on_lost,
            metadata, limit_key, wait_position)
        SELECT given.id, TG_ARGV[0], kind.queue_name, kind.priority, now, now,
            now + kind.expires_after * interval '1 second', kind.max_attempts, kind.timeout, kind.on_lost,
            kind.metadata,
            kind.limit_name, CASE WHEN kind.limit_name IS NOT NULL THEN given.id END
        FROM unnest(ids) AS given (id) WHERE known = '{}' OR given.id <> ALL (known);
    ELSE
        PERFORM _pgqueue_check_key_columns(kind, TG_RELID);
        PERFORM _pgqueue_insert_keyed_payloads(kind, TG_ARGV[0], now, ARRAY(
            SELECT jsonb_build_array(given.job_id, to_jsonb(given) ->> kind.limit_column,
                to_jsonb(given) ->> kind.group_column)
            FROM new_rows AS given WHERE known = '{}' OR given.job_id <> ALL (known)));
    END IF;
    RETURN NULL;
END $$;

-- Insert the jobs of payloads whose task has a limit key or a group in a column: p_rows contains for each the id, the
-- value of the key, and the group. As at enqueue, a value of NULL means that the job is under no limit, or in no group,
-- and an empty group is refused. The columns are of types whose text is the same in Python (payloads/columns.py).
CREATE FUNCTION _pgqueue_insert_keyed_payloads(
    p_kind pgqueue_task, p_task_path text, p_now timestamptz, p_rows jsonb[]
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text;
BEGIN
    SELECT CASE WHEN keyed.group_key = '' THEN format('the group of job %s is empty', keyed.id)
        ELSE _pgqueue_key_problem(keyed.limit_key) END
    INTO problem
    FROM (
        SELECT given ->> 0 AS id, given ->> 2 AS group_key,
            CASE WHEN p_kind.limit_column IS NOT NULL THEN p_kind.limit_name || '/' || (given ->> 1) END AS limit_key
        FROM unnest(p_rows) AS given
    ) AS keyed
    WHERE keyed.group_key = '' OR _pgqueue_key_problem(keyed.limit_key) IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_job_live (
        id, task_path, queue_name, priority, run_after, enqueued_at, expires_at, max_attempts, timeout, on_lost,
        metadata,
        limit_key, wait_position, group_key)
    SELECT keyed.id, p_task_path, p_kind.queue_name, p_kind.priority, p_now, p_now,
        p_now + p_kind.expires_after * interval '1 second', p_kind.max_attempts, p_kind.timeout, p_kind.on_lost,
        p_kind.metadata, keyed.limit_key, CASE WHEN keyed.limit_key IS NOT NULL THEN keyed.id END, keyed.group_key
    FROM (
        SELECT (given ->> 0)::bigint AS id, given ->> 2 AS group_key,
            CASE WHEN p_kind.limit_column IS NULL THEN p_kind.limit_name
                ELSE p_kind.limit_name || '/' || (given ->> 1) END AS limit_key
        FROM unnest(p_rows) AS given
    ) AS keyed;
END $$;

-- Refuse another key for a payload: it is the id of its job.
CREATE FUNCTION _pgqueue_payload_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'pgqueue: job_id of a row in % never changes (% to %)', TG_TABLE_NAME, OLD.job_id, NEW.job_id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'pgqueue_payload_key', TABLE = TG_TABLE_NAME,
            SCHEMA = TG_TABLE_SCHEMA, COLUMN = 'job_id', HINT = 'Insert another row, and delete this one.';
END $$;

-- After a DELETE in a payload table, also by a cascade: cancel the jobs of the rows; running ones are asked to stop.
--
-- Race: a worker claims or finishes a job at this moment. pgqueue_cancel waits for its row, and then asks it to stop,
-- or finds nothing. A worker that has claimed it, but has not read the row yet, ends it as cancelled.
CREATE FUNCTION _pgqueue_payload_delete() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ids bigint[];
BEGIN
    SELECT array_agg(gone.job_id) INTO ids FROM old_rows AS gone;
    ids := ARRAY(SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (ids));
    IF ids <> '{}' THEN
        PERFORM pgqueue_cancel(ids, format('its row in %s was deleted', TG_TABLE_NAME));
    END IF;
    RETURN NULL;
END $$;
