-- What pgqueue_task says about a call from SQL with these options, which come back with the keys that jobs have: that of a
-- limit with its name, a fixed one filled in, none for JSON null. The role that may only enqueue needs this, too, so it
-- runs with the rights of the owner then. It reads one row, by its primary key.
CREATE FUNCTION pgqueue_policy_v1(
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
        RETURN;  -- pgqueue_enqueue_v1 refuses it
    END IF;
    SELECT min(name) INTO missing FROM jsonb_array_elements_text(declared.computed_keys) AS name WHERE NOT options ? name;
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
                    'Pass only what comes after the slash: %s', substr(options ->> 'limit_key', length(limit_name) + 2));
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
