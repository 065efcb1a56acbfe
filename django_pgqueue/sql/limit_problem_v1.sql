-- Return what is wrong with a limit: NULL, or a message that says how to fix it.
CREATE FUNCTION pgqueue_limit_problem_v1(p_name text, p_running integer, p_on_conflict text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_name IS NULL OR p_name = '' OR length(p_name) > 200
            THEN format('the name of a limit must have 1 to 200 characters, not %s', coalesce(length(p_name), 0))
        WHEN strpos(p_name, '/') > 0
            THEN format('the name of a limit, %L, must not contain a slash: it applies to each key of that name', p_name)
        WHEN p_running < 1
            THEN format('the limit %L must let at least 1 job run, not %s. To let none start, pause the queue or the'
                ' task', p_name, p_running)
        WHEN p_on_conflict NOT IN ('wait', 'skip', 'cancel')
            THEN format('on_conflict %L must be ''wait'', ''skip'' or ''cancel''', p_on_conflict)
        WHEN p_on_conflict <> 'wait' AND (p_name = '*' OR p_name LIKE 'queue:%')
            THEN format('jobs always wait for the limit %L: leave out on_conflict', p_name)
    END
$$;
