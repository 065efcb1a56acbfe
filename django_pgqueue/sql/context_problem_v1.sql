-- Return what is wrong with the context of a job that is to be enqueued: NULL, or a message that says how to fix it. It
-- is bounded because it is stored with each job, and read with each attempt.
CREATE FUNCTION pgqueue_context_problem_v1(p_context jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    unknown text;
BEGIN
    IF p_context IS NULL THEN
        RETURN NULL;
    ELSIF jsonb_typeof(p_context) <> 'object' THEN
        RETURN format('context %s must be a JSON object', left(p_context::text, 100));
    END IF;
    SELECT min(key) INTO unknown FROM jsonb_object_keys(p_context) AS key
    WHERE key NOT IN ('language', 'trace', 'user', 'vars');
    RETURN CASE
        WHEN unknown IS NOT NULL
            THEN format('context has the unknown key %s: use language, trace, user or vars', unknown)
        WHEN octet_length(p_context::text) > 16384
            THEN format('context takes %s bytes as JSON, but a job can store only 16384',
                octet_length(p_context::text))
        WHEN jsonb_typeof(p_context -> 'language') <> 'string'
            OR p_context ->> 'language' !~ '^[A-Za-z0-9_@-]{1,35}$'
            THEN format('context language %s must be the code of a language, such as "de"', p_context -> 'language')
        WHEN jsonb_typeof(p_context -> 'trace') <> 'object'
            OR jsonb_path_exists(p_context -> 'trace', '$.* ? (@.type() != "string")')
            THEN format('context trace %s must be a JSON object of strings, such as {"traceparent": "00-..."}',
                p_context -> 'trace')
        WHEN jsonb_typeof(p_context -> 'user') NOT IN ('string', 'number')
            THEN format('context user %s must be the id of a user: a string or a number', p_context -> 'user')
        WHEN jsonb_typeof(p_context -> 'vars') <> 'object'
            THEN format('context vars %s must be a JSON object', p_context -> 'vars')
    END;
END $$;
