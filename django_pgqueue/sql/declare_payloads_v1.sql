-- Write the tasks that code declares for payload tables. Rows that do not change are not written, and none is deleted:
-- an older version of the code may still insert payloads. `relation` is an oid, because the caller's search path finds
-- the table, and not ours. Race: two processes that start at the same time write the rows in the same order, and do not
-- deadlock. A payload that is inserted meanwhile gets the policy that is committed.
CREATE FUNCTION pgqueue_declare_payloads_v1(p_declared jsonb) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    changed integer;
BEGIN
    INSERT INTO pgqueue_payload AS kind (
        task_path, model, relation, queue_name, priority, max_attempts, timeout, on_lost, expires_after, metadata,
        limit_name, limit_column, group_column, keeps)
    SELECT given.task_path, given.model, given.relation::regclass, given.queue_name, given.priority, given.max_attempts,
        given.timeout, given.on_lost, given.expires_after, given.metadata, given.limit_name, given.limit_column,
        given.group_column, given.keeps
    FROM jsonb_to_recordset(p_declared) AS given (
        task_path text, model text, relation oid, queue_name text, priority integer, max_attempts integer,
        timeout integer, on_lost text, expires_after double precision, metadata jsonb, limit_name text,
        limit_column text, group_column text, keeps boolean)
    ORDER BY given.task_path
    ON CONFLICT (task_path) DO UPDATE SET
        model = excluded.model, relation = excluded.relation, queue_name = excluded.queue_name,
        priority = excluded.priority, max_attempts = excluded.max_attempts, timeout = excluded.timeout,
        on_lost = excluded.on_lost, expires_after = excluded.expires_after, metadata = excluded.metadata,
        limit_name = excluded.limit_name, limit_column = excluded.limit_column,
        group_column = excluded.group_column, keeps = excluded.keeps
    WHERE (kind.model, kind.relation, kind.queue_name, kind.priority, kind.metadata, kind.keeps)
            <> (excluded.model, excluded.relation, excluded.queue_name, excluded.priority, excluded.metadata,
                excluded.keeps)
        OR (kind.max_attempts, kind.timeout, kind.on_lost, kind.expires_after, kind.limit_name, kind.limit_column,
                kind.group_column)
            IS DISTINCT FROM (excluded.max_attempts, excluded.timeout, excluded.on_lost, excluded.expires_after,
                excluded.limit_name, excluded.limit_column, excluded.group_column);
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;
