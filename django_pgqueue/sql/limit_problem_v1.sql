-- Return what is wrong with a limit: NULL, or a message that says how to fix it.
CREATE FUNCTION pgqueue_limit_problem_v1(
    p_name text, p_concurrency integer, p_on_full text,
    p_rate integer DEFAULT NULL, p_per interval DEFAULT NULL, p_burst integer DEFAULT NULL
) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_name IS NULL OR p_name = '' OR length(p_name) > 200
            THEN format('the name of a limit must have 1 to 200 characters, not %s', coalesce(length(p_name), 0))
        WHEN strpos(p_name, '/') > 0
            THEN format('the name of a limit, %L, must not contain a slash: it applies to each key of that name', p_name)
        WHEN p_concurrency < 1
            THEN format('the limit %L must let at least 1 job run, not %s. To let none start, pause the queue or the'
                ' task', p_name, p_concurrency)
        WHEN p_on_full NOT IN ('wait', 'cancel_new', 'cancel_old')
            THEN format('on_full %L must be ''wait'', ''cancel_new'' or ''cancel_old''', p_on_full)
        WHEN p_on_full <> 'wait' AND (p_name = '*' OR p_name LIKE 'queue:%')
            THEN format('jobs always wait for the limit %L: leave out on_full', p_name)
        WHEN p_rate < 1
            THEN format('the rate %L must allow at least 1 start, not %s. To let none start, pause the queue or the'
                ' task', p_name, p_rate)
        WHEN p_rate IS NULL AND num_nonnulls(p_per, p_burst) > 0
            THEN format('the rate %L has a period or a burst, but no number of starts: add rate', p_name)
        WHEN p_rate IS NOT NULL AND p_per IS NULL
            THEN format('the rate %L has no period: add the time in which %s jobs may start', p_name, p_rate)
        WHEN NOT extract(epoch FROM p_per) BETWEEN 0.000001 AND 3155760000
            THEN format('the period of the rate %L must be more than 0 seconds and at most 100 years, not %s', p_name,
                p_per)
        WHEN p_burst < 1
            THEN format('the burst of the rate %L must be at least 1, not %s', p_name, p_burst)
        WHEN p_burst * extract(epoch FROM p_per) / p_rate > 3155760000
            THEN format('the burst of the rate %L, %s, would take more than 100 years to be allowed again: lower it',
                p_name, p_burst)
        WHEN p_rate IS NOT NULL AND p_on_full <> 'wait'
            THEN format('jobs always wait for the rate %L: on_full must be ''wait''', p_name)
    END
$$;
