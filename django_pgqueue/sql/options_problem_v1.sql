-- Return what is wrong with the options of a job that is to be enqueued: NULL, or a message that says how to fix it.
-- Python has checked its own options; this is for users who call the functions directly.
CREATE FUNCTION pgqueue_options_problem_v1(p_options jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    unknown text;
    others constant text[] := '{limit_key,group_key,context,after,after_items,if_failed,batch}';
    bounds jsonb := p_options -> 'unique_window';
BEGIN
    IF jsonb_typeof(p_options) <> 'object' THEN
        RETURN 'options must be a JSON object';
    END IF;
    SELECT min(key) INTO unknown FROM jsonb_object_keys(p_options) AS key
    WHERE key NOT IN ('unique_key', 'unique_scope', 'unique_window', 'on_conflict', 'limit_key', 'group_key',
        'context', 'after', 'after_items', 'if_failed', 'batch');
    RETURN CASE
        WHEN unknown IS NOT NULL
            THEN format('unknown option %s: use max_json_bytes, unique_key, unique_scope, unique_window, on_conflict,'
                ' limit_key, group_key, context, after, if_failed or batch',
                unknown)
        WHEN p_options ? 'limit_key' AND jsonb_typeof(p_options -> 'limit_key') <> 'string'
            THEN format('limit_key %s must be a string', p_options -> 'limit_key')
        WHEN pgqueue_key_problem_v1(p_options ->> 'limit_key') IS NOT NULL
            THEN pgqueue_key_problem_v1(p_options ->> 'limit_key')
        WHEN p_options ? 'group_key' AND (jsonb_typeof(p_options -> 'group_key') <> 'string' OR p_options ->> 'group_key' = '')
            THEN format('group_key %s must be a string that is not empty', p_options -> 'group_key')
        WHEN length(p_options ->> 'group_key') > 200
            THEN format('group_key has %s characters, but a job can store only 200: use a hash of it',
                length(p_options ->> 'group_key'))
        WHEN pgqueue_context_problem_v1(p_options -> 'context') IS NOT NULL
            THEN pgqueue_context_problem_v1(p_options -> 'context')
        WHEN p_options ?| '{after,after_items,if_failed,batch}' AND pgqueue_link_problem_v1(p_options) IS NOT NULL
            THEN pgqueue_link_problem_v1(p_options)
        WHEN NOT p_options ? 'unique_key' AND p_options - others <> '{}'
            THEN format('the option %s needs unique_key',
                (SELECT min(key) FROM jsonb_object_keys(p_options - others) AS key))
        WHEN jsonb_typeof(p_options -> 'unique_key') <> 'string' OR p_options ->> 'unique_key' = ''
            THEN format('unique_key %s must be a string that is not empty', p_options -> 'unique_key')
        WHEN length(p_options ->> 'unique_key') > 200
            THEN format('unique_key has %s characters, but a job can store only 200: use a hash of it',
                length(p_options ->> 'unique_key'))
        WHEN coalesce(p_options -> 'unique_scope', '"live"') NOT IN ('"waiting"', '"live"')
            THEN format('unique_scope %s must be "waiting" or "live"', p_options -> 'unique_scope')
        WHEN jsonb_typeof(bounds) <> 'number'
            THEN format('unique_window %s must be a number of seconds', bounds)
        WHEN NOT bounds::numeric BETWEEN 0.000001 AND 3155760000
            THEN format('unique_window %s must be more than 0 seconds and at most 100 years', bounds)
        WHEN coalesce(p_options -> 'on_conflict', '"raise"') NOT IN ('"existing"', '"replace"', '"earliest"', '"raise"')
            THEN format('on_conflict %s must be "existing", "replace", "earliest" or "raise"', p_options -> 'on_conflict')
    END;
END $$;
