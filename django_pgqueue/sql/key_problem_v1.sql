-- Return what is wrong with the limit key of a job: NULL, or a message that says how to fix it.
CREATE FUNCTION pgqueue_key_problem_v1(p_key text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN length(p_key) > 200
            THEN format('limit_key has %s characters, but the limit is 200: shorten it, or use a hash',
                length(p_key))
        WHEN split_part(p_key, '/', 1) = '' OR split_part(p_key, '/', 1) = '*' OR p_key LIKE 'queue:%'
            THEN format('limit_key %L must begin with the name of a limit, such as shop.tasks.sync/7. Limits of'
                ' queues and of the installation apply to every job', p_key)
    END
$$;
