-- Write all tasks that code declares. Rows that do not change are not written, and none is deleted: another version of the
-- code may still enqueue the task. `relation` is an oid, because the caller's search path finds the table, and not ours.
--
-- Race: two versions of the code start at the same time. The lock lets one write all of its rows after the other, so that
-- the table has those of one version, and not of both. It is no lock of the table, which a sweep of payloads needs after
-- those of its rows. A job that is inserted meanwhile gets the policy that is committed.
CREATE FUNCTION pgqueue_declare_tasks_v1(p_declared jsonb) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '10s' AS $$
DECLARE
    changed integer;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('pgqueue_task', 0));
    INSERT INTO pgqueue_task AS kind (
        task_path, queue_name, priority, max_attempts, timeout, on_lost, expires_after, metadata, limit_name,
        unique_options, computed_keys, model, relation, limit_column, group_column, keeps)
    SELECT given.task_path, given.queue_name, given.priority, given.max_attempts, given.timeout, given.on_lost,
        given.expires_after, given.metadata, given.limit_name, given.unique_options,
        coalesce(given.computed_keys, '[]'), given.model, given.relation::regclass, given.limit_column,
        given.group_column, coalesce(given.keeps, false)
    FROM jsonb_to_recordset(p_declared) AS given (
        task_path text, queue_name text, priority integer, max_attempts integer, timeout integer, on_lost text,
        expires_after double precision, metadata jsonb, limit_name text, unique_options jsonb, computed_keys jsonb,
        model text, relation oid, limit_column text, group_column text, keeps boolean)
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
