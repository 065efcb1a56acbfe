-- Return what is wrong with those options of a job that is to be enqueued that name other jobs: NULL, or a message that
-- says how to fix it.
CREATE FUNCTION pgqueue_link_problem_v1(p_options jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_options ? 'after' AND (jsonb_typeof(p_options -> 'after') <> 'array'
            OR jsonb_path_exists(p_options -> 'after', '$[*] ? (@.type() != "number" || @ < 1 || @ > 9223372036854775807
                || @.floor() != @)'))
            THEN format('after %s must be an array of the ids of jobs and batches', left((p_options -> 'after')::text, 100))
        WHEN p_options ? 'after_items' AND (jsonb_typeof(p_options -> 'after_items') <> 'array'
            OR jsonb_path_exists(p_options -> 'after_items', '$[*] ? (@.type() != "number" || @ < 1 || @ > 1000000
                || @.floor() != @)'))
            THEN format('after_items %s must be an array of places in the same call',
                left((p_options -> 'after_items')::text, 100))
        WHEN coalesce(jsonb_array_length(p_options -> 'after'), 0)
            + coalesce(jsonb_array_length(p_options -> 'after_items'), 0) > 100
            THEN 'after has more than 100 jobs: make them members of a batch, and enqueue the job after the batch'
        WHEN p_options ? 'if_failed' AND NOT p_options ?| '{after,after_items}'
            THEN 'if_failed needs after'
        WHEN coalesce(p_options -> 'if_failed', '"hold"') NOT IN ('"hold"', '"cancel"', '"run"')
            THEN format('if_failed %s must be "hold", "cancel" or "run"', p_options -> 'if_failed')
        WHEN p_options ? 'batch' AND (jsonb_typeof(p_options -> 'batch') <> 'number' OR p_options ->> 'batch' !~ '^[1-9][0-9]{0,17}$')
            THEN format('batch %s must be the id of a batch', p_options -> 'batch')
        WHEN p_options ->> 'on_conflict' IN ('replace', 'earliest')
            THEN format('on_conflict "%s" changes the job that has the key, but that job keeps what it waits for and its batch:'
                ' use "existing" or "raise" with after or batch', p_options ->> 'on_conflict')
    END
$$;
