-- Return what is wrong with a job that is to be enqueued: NULL, or a message that says how to fix it. This is a
-- plain SQL expression, so that the planner inlines it. So it has no settings of its own, and calls no volatile
-- function such as clock_timestamp(). A bound in a regular expression, such as {1,100}, would cost more than all
-- checks together. p_max_bytes is NULL if Python has checked the size already: its JSON has no spaces, so the two
-- would count different sizes.
CREATE FUNCTION pgqueue_problem_v1(
    p_task_path text, p_args jsonb, p_kwargs jsonb, p_metadata jsonb, p_queue_name text, p_priority integer,
    p_run_after timestamptz, p_expires_at timestamptz, p_max_attempts integer, p_timeout integer,
    p_on_lost text, p_max_bytes integer
) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN p_task_path IS NULL OR p_task_path !~ '^[^\s.0-9][^\s.]*(\.[^\s.0-9][^\s.]*)+$' OR length(p_task_path) > 255
            THEN format('task_path %L is not the dotted path of a task, such as shop.tasks.send_receipt', p_task_path)
        WHEN p_args IS NULL OR jsonb_typeof(p_args) <> 'array'
            THEN 'args must be a JSON array'
        WHEN p_kwargs IS NULL OR jsonb_typeof(p_kwargs) <> 'object'
            THEN 'kwargs must be a JSON object'
        WHEN p_metadata IS NULL OR jsonb_typeof(p_metadata) <> 'object'
            THEN 'metadata must be a JSON object'
        WHEN p_max_bytes IS NOT NULL AND octet_length(p_args::text || p_kwargs::text || p_metadata::text) > p_max_bytes
            THEN format('the arguments take %s bytes as JSON, but the limit is %s: store the data and pass its key',
                octet_length(p_args::text || p_kwargs::text || p_metadata::text), p_max_bytes)
        WHEN p_queue_name IS NULL OR p_queue_name !~ '^[A-Za-z0-9_.-]+$' OR length(p_queue_name) > 100
            THEN format('queue_name %L must be 1 to 100 letters, digits or any of _ - .', p_queue_name)
        WHEN p_priority IS NULL OR p_priority NOT BETWEEN -100 AND 100
            THEN format('priority %s must be from -100 to 100', coalesce(p_priority::text, 'NULL'))
        WHEN p_run_after > statement_timestamp() + interval '100 years' OR p_run_after < '0001-01-01'
            THEN format('run_after %s is more than 100 years ahead or before the year 1', p_run_after)
        WHEN p_expires_at > statement_timestamp() + interval '200 years'
            THEN format('expires_at %s is more than 200 years ahead', p_expires_at)
        WHEN p_expires_at <= statement_timestamp()
            THEN format('expires_at %s is in the past', p_expires_at)
        WHEN p_max_attempts < 1
            THEN format('max_attempts %s must be at least 1', p_max_attempts)
        WHEN p_timeout < 1
            THEN format('timeout %s must be at least 1 second', p_timeout)
        WHEN p_on_lost NOT IN ('rerun', 'fail')
            THEN format('on_lost %L must be ''rerun'' or ''fail''', p_on_lost)
    END
$$;
