-- Write all tasks that code declares. Rows that do not change are not written, and none is deleted: another version of
-- the code may still enqueue the task. `relation` is an oid, because the caller's search path finds the table, and not
-- ours.
--
-- Race: two versions of the code start at the same time. The lock lets one write all of its rows after the other, so
-- that the table has the rows of one version, and not of both. It is no lock of the table, which a sweep of
-- payloads needs after the locks of its rows. A job that is inserted meanwhile gets the policy that is committed.
CREATE FUNCTION _pgqueue_declare_tasks(p_declared jsonb) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '10s' AS $$
DECLARE
    changed integer;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('pgqueue_task', 0));
    INSERT INTO pgqueue_task AS kind
    SELECT given.* FROM jsonb_populate_recordset(
        jsonb_populate_record(NULL::pgqueue_task, '{"computed_keys": [], "keeps": false, "swept_to": 0}'),
        p_declared) AS given
    ON CONFLICT (task_path) DO UPDATE SET
        queue_name = excluded.queue_name, priority = excluded.priority, max_attempts = excluded.max_attempts,
        timeout = excluded.timeout, on_lost = excluded.on_lost, expires_after = excluded.expires_after,
        metadata = excluded.metadata, limit_name = excluded.limit_name, unique_options = excluded.unique_options,
        computed_keys = excluded.computed_keys, search = excluded.search, model = excluded.model,
        relation = excluded.relation,
        limit_column = excluded.limit_column, group_column = excluded.group_column, keeps = excluded.keeps
    WHERE to_jsonb(kind) - 'swept_to' <> to_jsonb(excluded) - 'swept_to';
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;

-- Make a table the payload table of a task: the migration operation PayloadTriggers calls this. If it belongs to a task
-- already, that one has a new path, and the earlier one stays among the arguments of the trigger: jobs of old code
-- count as its own, and its policy counts until the new one is declared. A path of NULL undoes the last call: the table
-- belongs to the task with the earlier path again, or to none.
CREATE FUNCTION _pgqueue_attach_payload(p_relation regclass, p_task_path text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    earlier text[] := _pgqueue_payload_paths(p_relation);
    paths text[] := CASE WHEN p_task_path IS NULL THEN earlier[2:]
        ELSE p_task_path || array_remove(earlier, p_task_path) END;
BEGIN
    EXECUTE format(
        'DROP TRIGGER IF EXISTS pgqueue_payload_insert ON %1$s;
        DROP TRIGGER IF EXISTS pgqueue_payload_update ON %1$s;
        DROP TRIGGER IF EXISTS pgqueue_payload_delete ON %1$s', p_relation);
    IF paths <> '{}' THEN
        EXECUTE format(
            'CREATE TRIGGER pgqueue_payload_insert AFTER INSERT ON %1$s REFERENCING NEW TABLE AS new_rows
                FOR EACH STATEMENT EXECUTE FUNCTION _pgqueue_payload_insert(%2$s);
            CREATE TRIGGER pgqueue_payload_update BEFORE UPDATE OF job_id ON %1$s FOR EACH ROW
                WHEN (OLD.job_id IS DISTINCT FROM NEW.job_id) EXECUTE FUNCTION _pgqueue_payload_change();
            CREATE TRIGGER pgqueue_payload_delete AFTER DELETE ON %1$s REFERENCING OLD TABLE AS old_rows
                FOR EACH STATEMENT EXECUTE FUNCTION _pgqueue_payload_change()',
            p_relation, (SELECT string_agg(quote_literal(path), ', ' ORDER BY place)
                FROM unnest(paths) WITH ORDINALITY AS given (path, place)));
    END IF;
END $$;

-- Return the path of the task to which a payload table belongs, as its trigger says, and the earlier paths. Empty: it
-- has no triggers, or not all of them, or they are disabled. The arguments of a trigger each end with a zero byte.
CREATE FUNCTION _pgqueue_payload_paths(p_relation regclass) RETURNS text[] LANGUAGE sql STABLE
SET standard_conforming_strings = on AS $$
    SELECT coalesce((
        SELECT string_to_array(left(encode(trigger.tgargs, 'escape'), -4), '\000') FROM pg_trigger AS trigger
        WHERE trigger.tgrelid = p_relation AND trigger.tgname = 'pgqueue_payload_insert' AND 3 = (
            SELECT count(*) FROM pg_trigger AS every WHERE every.tgrelid = p_relation AND every.tgenabled <> 'D'
                AND every.tgname IN ('pgqueue_payload_insert', 'pgqueue_payload_update', 'pgqueue_payload_delete'))
    ), '{}')
$$;

-- After an INSERT into a payload table: make the jobs of the new rows. The arguments are the path of the task, and its
-- earlier paths, which count as the same (_pgqueue_attach_payload). A row whose job exists was inserted by enqueue(),
-- after its job. Any other job is refused, and so is a number that does not come from the sequence: a later job would
-- get it, too. In this way the key says whose job it is, as a foreign key would.
--
-- The key of a limit, or the group, may be in a column whose text is the same in Python (payloads/columns.py). As at
-- enqueue, a value of NULL means that the job is under no limit, or in no group, and an empty group is refused. Without
-- the column, as after a rename, each row is refused: its job would have no limit.
--
-- The ids are compared with an array. A join of the transition table with the root took 5 ms a row.
--
-- Race: a retry may move a job with such an id from history to the live leaf between the two looks. Then the INSERT
-- below violates its primary key, and nothing was inserted.
CREATE FUNCTION _pgqueue_payload_insert() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ids bigint[];
    known bigint[];
    limit_keys text[];
    group_keys text[];
    kind pgqueue_task;
    now timestamptz;
    problem text;
BEGIN
    SELECT array_agg(given.job_id) INTO ids FROM new_rows AS given;
    known := ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (ids) AND job.task_path = ANY (TG_ARGV));
    IF ids IS NULL OR cardinality(known) = cardinality(ids) THEN
        RETURN NULL;
    END IF;
    SELECT format('job %s cannot have a row in %s: ', job.id, TG_TABLE_NAME) || CASE
        WHEN job.task_path = ANY (TG_ARGV) THEN 'it is finished'
        ELSE format('it is a job of %s, not of %s', job.task_path, TG_ARGV[0]) END
    INTO problem
    FROM pgqueue_job AS job WHERE job.id = ANY (ids) AND job.id <> ALL (known) ORDER BY job.id LIMIT 1;
    IF NOT FOUND THEN
        SELECT format(
            'job_id %s in %s does not come from the sequence pgqueue_job_id_seq', max(given.id), TG_TABLE_NAME)
        INTO problem
        FROM unnest(ids) AS given (id)
        HAVING max(given.id) > (SELECT sequence.last_value FROM pgqueue_job_id_seq AS sequence);
    END IF;
    IF FOUND THEN
        RAISE EXCEPTION 'pgqueue: %', problem
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'pgqueue_payload_job', TABLE = TG_TABLE_NAME,
                SCHEMA = TG_TABLE_SCHEMA, COLUMN = 'job_id',
                HINT = 'Leave job_id out: the row gets a new job. To run a finished job again, use retry().';
    END IF;
    SELECT declared.* INTO kind FROM pgqueue_task AS declared
    WHERE declared.task_path = ANY (TG_ARGV) ORDER BY array_position(TG_ARGV, declared.task_path::text) LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: the task % of % is not declared in this database', TG_ARGV[0], TG_TABLE_NAME
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'pgqueue_payload_task', TABLE = TG_TABLE_NAME,
                SCHEMA = TG_TABLE_SCHEMA,
                HINT = 'Run manage.py migrate, or start a worker, with the code that declares the task.';
    END IF;
    IF num_nonnulls(kind.limit_column, kind.group_column) > 0 THEN
        SELECT format('%s has no column %s, which is the key or the group of %s', TG_RELID::regclass, wanted.name,
            kind.task_path)
        INTO problem
        FROM (SELECT to_jsonb(given) AS columns FROM new_rows AS given LIMIT 1) AS one,
            unnest(ARRAY[kind.limit_column, kind.group_column]) AS wanted (name)
        WHERE NOT one.columns ? wanted.name LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'undefined_column',
                HINT = 'If it was renamed, run manage.py migrate, or start a worker, with the code that names the new '
                    'one.';
        END IF;
        SELECT array_agg(given.job_id),
            array_agg(kind.limit_name || '/' || (to_jsonb(given) ->> kind.limit_column)),
            array_agg(to_jsonb(given) ->> kind.group_column)
        INTO ids, limit_keys, group_keys
        FROM new_rows AS given WHERE given.job_id <> ALL (known);
        SELECT CASE WHEN given.group_key = '' THEN format('the group of job %s is empty', given.id)
            ELSE _pgqueue_key_problem(given.limit_key) END
        INTO problem
        FROM unnest(ids, limit_keys, group_keys) AS given (id, limit_key, group_key)
        WHERE given.group_key = '' OR _pgqueue_key_problem(given.limit_key) IS NOT NULL LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END IF;
    now := clock_timestamp();
    INSERT INTO pgqueue_job_live (
        id, task_path, queue_name, priority, run_after, enqueued_at, expires_at, max_attempts, timeout, on_lost,
        metadata, limit_key, wait_position, group_key)
    SELECT keyed.id, TG_ARGV[0], kind.queue_name, kind.priority, now, now,
        now + kind.expires_after * interval '1 second', kind.max_attempts, kind.timeout, kind.on_lost,
        kind.metadata, keyed.limit_key, CASE WHEN keyed.limit_key IS NOT NULL THEN keyed.id END, keyed.group_key
    FROM (
        SELECT given.id, given.group_key,
            CASE WHEN kind.limit_column IS NULL THEN kind.limit_name ELSE given.limit_key END AS limit_key
        FROM unnest(ids, limit_keys, group_keys) AS given (id, limit_key, group_key)
        WHERE known = '{}' OR given.id <> ALL (known)
    ) AS keyed;
    RETURN NULL;
END $$;

-- Before an UPDATE of the key of a payload: refuse it, because it is the id of the job. After a DELETE in a payload
-- table, also by a cascade: cancel the jobs of the rows; running ones are asked to stop.
--
-- Race: a worker claims or finishes a job at this moment. pgqueue_cancel waits for its row, and then asks it to stop,
-- or finds nothing. A worker that has claimed it, but has not read the row yet, ends it as cancelled.
CREATE FUNCTION _pgqueue_payload_change() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ids bigint[];
BEGIN
    IF TG_OP = 'UPDATE' THEN
        RAISE EXCEPTION 'pgqueue: job_id of a row in % never changes (% to %)', TG_TABLE_NAME, OLD.job_id, NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pgqueue_payload_key', TABLE = TG_TABLE_NAME,
                SCHEMA = TG_TABLE_SCHEMA, COLUMN = 'job_id', HINT = 'Insert another row, and delete this one.';
    END IF;
    ids := ARRAY(SELECT gone.job_id FROM old_rows AS gone);
    ids := ARRAY(SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (ids));
    IF ids <> '{}' THEN
        PERFORM pgqueue_cancel(ids, format('its row in %s was deleted', TG_TABLE_NAME));
    END IF;
    RETURN NULL;
END $$;

-- Delete payloads whose job is no longer kept. Of each table, look at the next p_limit rows in the order of the ids,
-- and begin anew after the last one. Returns how many were deleted, what prevented it, for each table with a problem,
-- and the models in which strays were found.
--
-- Only what once had a job is deleted: a row whose id is that of a job that is gone (pgqueue_gone). Any
-- other row without a job was written without triggers. It is noted as a stray, because later the jobs around it are
-- gone, too. If the queue of the task keeps finished jobs for no time at all, their ids are not noted, and each row
-- without a job counts as one of theirs, unless it is a stray already.
--
-- Race: a retry moves the job from history to the live leaf. One statement looks into all leaves, and so with one
-- snapshot, in which the job is in exactly one leaf. Two statements could miss it in both.
--
-- Race: a job goes between two statements, so pgqueue_gone is read after the look at the jobs.
--
-- Race: two supervisors sweep at the same time. One skips the table.
CREATE FUNCTION _pgqueue_sweep_payloads(
    p_limit integer, OUT swept integer, OUT problems text[], OUT strays text[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    kind record;
    page bigint[];
    jobless bigint[];
    over bigint[];
    reached bigint;
    deleted integer;
    deferred text;
BEGIN
    swept := 0;
    FOR kind IN
        SELECT declared.task_path, declared.model, declared.relation, declared.swept_to, least(
            coalesce(queue.retention, ring.retention), coalesce(queue.failed_retention, ring.failed_retention)
        ) <= interval '0' AS forgets
        FROM pgqueue_task AS declared CROSS JOIN pgqueue_ring AS ring
        LEFT JOIN pgqueue_queue AS queue ON queue.name = declared.queue_name
        WHERE EXISTS (SELECT FROM pg_class AS class WHERE class.oid = declared.relation)
            -- A task whose path has changed has two rows. The table is swept once, and not if either of them keeps.
            AND NOT EXISTS (
                SELECT FROM pgqueue_task AS same WHERE same.relation = declared.relation
                    AND (same.keeps OR same.task_path < declared.task_path))
        ORDER BY declared.task_path FOR NO KEY UPDATE OF declared SKIP LOCKED
    LOOP
        page := NULL;
        jobless := '{}';
        BEGIN
            EXECUTE format('SELECT array_agg(page.job_id) FROM (SELECT row.job_id FROM %s AS row WHERE row.job_id > $1
                ORDER BY row.job_id LIMIT $2) AS page', kind.relation) INTO page USING kind.swept_to, p_limit;
            jobless := ARRAY(
                SELECT given.id FROM unnest(page) AS given (id)
                WHERE given.id <> ALL (ARRAY(SELECT job.id FROM pgqueue_job AS job WHERE job.id = ANY (page))));
            IF jobless <> '{}' THEN
                over := ARRAY(
                    SELECT given.id FROM unnest(jobless) AS given (id)
                    WHERE (kind.forgets OR EXISTS (
                            SELECT FROM pgqueue_gone AS gone WHERE given.id BETWEEN gone.first_id AND gone.last_id))
                        AND NOT EXISTS (
                            SELECT FROM pgqueue_stray AS stray
                            WHERE stray.relation = kind.relation AND stray.job_id = given.id));
                IF over <> jobless THEN
                    strays := strays || kind.model::text;
                    INSERT INTO pgqueue_stray (relation, job_id)
                    SELECT kind.relation, given.id FROM unnest(jobless) AS given (id) WHERE given.id <> ALL (over)
                    ON CONFLICT DO NOTHING;
                END IF;
                EXECUTE format('DELETE FROM %s AS row WHERE row.job_id = ANY ($1)', kind.relation) USING over;
                GET DIAGNOSTICS deleted = ROW_COUNT;
                -- Check the foreign keys now that reference the table, which Django makes deferrable: at the commit it
                -- would be too late to undo only the deletion of these rows.
                SELECT string_agg(format('%I.%I', schema.nspname, reference.conname), ', ') INTO deferred
                FROM pg_constraint AS reference JOIN pg_namespace AS schema ON schema.oid = reference.connamespace
                WHERE reference.contype = 'f' AND reference.confrelid = kind.relation AND reference.condeferrable;
                IF deferred IS NOT NULL THEN
                    EXECUTE format('SET CONSTRAINTS %s IMMEDIATE', deferred);
                    EXECUTE format('SET CONSTRAINTS %s DEFERRED', deferred);
                END IF;
                swept := swept + deleted;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            problems := problems || format('%s: %s', kind.model, SQLERRM);
        END;
        reached := CASE WHEN cardinality(page) = p_limit THEN page[p_limit] END;
        DELETE FROM pgqueue_stray AS stray
        WHERE stray.relation = kind.relation AND stray.job_id > kind.swept_to
            AND (reached IS NULL OR stray.job_id <= reached) AND stray.job_id <> ALL (jobless);
        UPDATE pgqueue_task AS declared SET swept_to = coalesce(reached, 0)
        WHERE declared.task_path = kind.task_path AND declared.swept_to <> coalesce(reached, 0);
    END LOOP;
END $$;
