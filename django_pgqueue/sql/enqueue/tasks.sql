-- Write all tasks that code declares. Rows that do not change are not written, and none is deleted: another version of
-- the code may still enqueue the task. `relation` is an oid, because the caller's search path finds the table, and not
-- ours.
--
-- Race: two versions of the code start at the same time. The lock lets one write all of its rows after the other, so
-- that the table has those of one version, and not of both. It is no lock of the table, which a sweep of payloads needs
-- after those of its rows. A job that is inserted meanwhile gets the policy that is committed.
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
        computed_keys = excluded.computed_keys, model = excluded.model, relation = excluded.relation,
        limit_column = excluded.limit_column, group_column = excluded.group_column, keeps = excluded.keeps
    WHERE to_jsonb(kind) - 'swept_to' <> to_jsonb(excluded) - 'swept_to';
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;

-- Refuse a new job of a role that may only enqueue if its arguments and metadata are larger than the server allows,
-- whatever limit the caller has given: JSON without spaces is what Python measures, and this has some, so a job of the
-- full size that Python accepts may take a little more here.
CREATE FUNCTION _pgqueue_check_size() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    allowed integer := coalesce((SELECT ring.max_json_bytes FROM pgqueue_ring AS ring), 1048576);
    bytes integer := octet_length(NEW.args::text || NEW.kwargs::text || NEW.metadata::text);
BEGIN
    IF bytes > allowed + allowed / 2 THEN
        RAISE EXCEPTION
            'pgqueue: the arguments take % bytes as JSON, but the limit is %: store the data and pass its key',
            bytes, allowed USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN NEW;
END $$;
