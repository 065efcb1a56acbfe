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

-- What pgqueue_task says about a call from SQL with these options, which come back with the keys that jobs have: that
-- of a limit with its name, a fixed one filled in, none for JSON null. The role that may only enqueue needs this, too,
-- so it runs with the rights of the owner then. It reads one row, by its primary key.
CREATE FUNCTION _pgqueue_policy(
    p_task_path text, p_options jsonb, OUT queue_name text, OUT priority integer, OUT metadata jsonb,
    OUT max_attempts integer, OUT timeout integer, OUT on_lost text, OUT expires_after double precision,
    OUT options jsonb
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    declared record;
    limit_name text;
    missing text;
    null_keys text[];
BEGIN
    SELECT task.* INTO declared FROM pgqueue_task AS task WHERE task.task_path = p_task_path;
    queue_name := coalesce(declared.queue_name, 'default');
    priority := coalesce(declared.priority, 0);
    metadata := coalesce(declared.metadata, '{}');
    max_attempts := declared.max_attempts;
    timeout := declared.timeout;
    on_lost := declared.on_lost;
    expires_after := declared.expires_after;
    options := coalesce(p_options, '{}');
    IF jsonb_typeof(options) <> 'object' THEN
        RETURN;  -- _pgqueue_enqueue refuses it
    END IF;
    SELECT min(name) INTO missing
    FROM jsonb_array_elements_text(declared.computed_keys) AS name WHERE NOT options ? name;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: the option % is missing, which % computes from its arguments', missing, p_task_path
            USING ERRCODE = 'invalid_parameter_value', HINT = format(
                'SQL cannot compute it. Pass its value, or null for none: options => ''{"%s": ...}''', missing);
    END IF;
    limit_name := coalesce(declared.limit_name, p_task_path);
    IF jsonb_typeof(options -> 'limit_key') = 'string' THEN
        IF starts_with(options ->> 'limit_key', limit_name || '/') THEN
            RAISE EXCEPTION 'pgqueue: limit_key % begins with the name of the limit', options -> 'limit_key'
                USING ERRCODE = 'invalid_parameter_value', HINT = format(
                    'Pass only what comes after the slash: %s',
                    substr(options ->> 'limit_key', length(limit_name) + 2));
        END IF;
        options := options || jsonb_build_object('limit_key', limit_name || '/' || (options ->> 'limit_key'));
    ELSIF NOT options ? 'limit_key' AND declared.limit_name IS NOT NULL THEN
        options := options || jsonb_build_object('limit_key', declared.limit_name);
    END IF;
    IF declared.unique_options IS NOT NULL AND options -> 'unique_key' IS DISTINCT FROM 'null' THEN
        options := declared.unique_options || options;
    END IF;
    null_keys := ARRAY(
        SELECT name FROM unnest('{limit_key,group_key,unique_key}'::text[]) AS name WHERE options -> name = 'null');
    options := options - null_keys;
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
