-- Return the name under which the limit of a queue, of a task, of a name in code or of everything is stored.
CREATE FUNCTION pgqueue_limit_name_v1(p_kind text, p_name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_kind IS NULL OR p_kind NOT IN ('queue', 'task', 'limit', 'all') THEN
        RAISE EXCEPTION 'pgqueue: the kind of a limit must be queue, task, limit or all, not %', quote_nullable(p_kind)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Such as pgqueue_set_limit(''queue'', ''mail'', 5).';
    ELSIF (p_kind = 'all') <> (coalesce(p_name, '') = '') THEN
        RAISE EXCEPTION 'pgqueue: the limit of kind % %', p_kind,
            CASE p_kind WHEN 'all' THEN 'has no name' ELSE 'needs a name' END
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_kind IN ('task', 'limit') AND (p_name = '*' OR p_name LIKE 'queue:%') THEN
        RAISE EXCEPTION 'pgqueue: % is the limit of a queue or of all jobs', quote_literal(p_name)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use the kind queue or all.';
    END IF;
    RETURN CASE p_kind WHEN 'queue' THEN 'queue:' || p_name WHEN 'all' THEN '*' ELSE p_name END;
END $$;
