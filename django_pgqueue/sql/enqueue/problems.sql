-- Return what is wrong with a job that is to be enqueued: NULL, or a message that says how to fix it. This is a
-- plain SQL expression that the planner inlines. For that, it has no settings of its own, and calls no volatile
-- function such as clock_timestamp(). A bound in a regular expression, such as {1,100}, would cost more than all
-- checks together. p_max_bytes is NULL if Python has checked the size already: its JSON has no spaces, so the two
-- would count different sizes.
CREATE FUNCTION _pgqueue_problem(
    p_task_path text, p_args jsonb, p_kwargs jsonb, p_metadata jsonb, p_queue_name text, p_priority integer,
    p_run_after timestamptz, p_expires_at timestamptz, p_max_attempts integer, p_timeout integer,
    p_on_lost text, p_max_bytes integer
) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN p_task_path IS NULL OR p_task_path !~ '^[^\s.0-9][^\s.]*(\.[^\s.0-9][^\s.]*)+$'
            OR length(p_task_path) > 255
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

-- Return what is wrong with a limit: NULL, or a message that says how to fix it.
CREATE FUNCTION _pgqueue_limit_problem(
    p_name text, p_concurrency integer, p_on_full text,
    p_rate integer DEFAULT NULL, p_per interval DEFAULT NULL, p_burst integer DEFAULT NULL
) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_name IS NULL OR p_name = '' OR length(p_name) > 200
            THEN format('the name of a limit must have 1 to 200 characters, not %s', coalesce(length(p_name), 0))
        WHEN strpos(p_name, '/') > 0
            THEN format('the name of a limit, %L, must not contain a slash: it applies to each key of that name',
                p_name)
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

-- Return what is wrong with the limit key of a job: NULL, or a message that says how to fix it.
CREATE FUNCTION _pgqueue_key_problem(p_key text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN length(p_key) > 200
            THEN format('limit_key has %s characters, but the limit is 200: shorten it, or use a hash',
                length(p_key))
        WHEN split_part(p_key, '/', 1) = '' OR split_part(p_key, '/', 1) = '*' OR p_key LIKE 'queue:%'
            THEN format('limit_key %L must begin with the name of a limit, such as shop.tasks.sync/7. Limits of'
                ' queues and of the installation apply to every job', p_key)
    END
$$;

-- Return what is wrong with the options of a job that is to be enqueued: NULL, or a message that says how to fix it.
-- Python has checked its own options; this is for users who call the functions directly. The context is bounded because
-- it is stored with each job, and read with each attempt. There is no subquery, with which the server would start a
-- statement for each job. What a job does not have is skipped, because the server prepares a whole expression in each
-- transaction: all of them would take a fifth of the time of an enqueue that only has a tenant.
CREATE FUNCTION _pgqueue_options_problem(p_options jsonb) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    context jsonb := p_options -> 'context';
    tenant jsonb := p_options -> 'tenant';
    unknown jsonb;
    problem text;
BEGIN
    IF jsonb_typeof(p_options) <> 'object' THEN
        RETURN 'options must be a JSON object';
    ELSIF jsonb_typeof(context) <> 'object' THEN
        RETURN format('context %s must be a JSON object', left(context::text, 100));
    ELSIF jsonb_typeof(tenant) <> 'string' OR tenant #>> '{}' !~ '^[A-Za-z0-9_.-]+$'
        OR length(tenant #>> '{}') > 63
    THEN
        RETURN format('tenant %s must be a string of 1 to 63 letters, digits or any of _ - .', tenant);
    END IF;
    unknown := p_options - '{limit_key,group_key,tenant,context,after,after_items,if_failed,batch,search,unique_key,'
        'unique_scope,unique_window,on_conflict}'::text[];
    IF unknown <> '{}' THEN
        RETURN format('unknown option %s: use max_json_bytes, unique_key, unique_scope, unique_window, on_conflict,'
            ' limit_key, group_key, tenant, context, after, if_failed or batch',
            jsonb_path_query_first(unknown, '$.keyvalue().key') #>> '{}');
    END IF;
    IF context <> '{}' THEN
        unknown := context - '{language,trace,user,vars}'::text[];
        problem := CASE
            WHEN unknown <> '{}'
                THEN format('context has the unknown key %s: use language, trace, user or vars',
                    jsonb_path_query_first(unknown, '$.keyvalue().key') #>> '{}')
            WHEN octet_length(context::text) > 16384
                THEN format('context takes %s bytes as JSON, but a job can store only 16384',
                    octet_length(context::text))
            WHEN jsonb_typeof(context -> 'language') <> 'string' OR context ->> 'language' !~ '^[A-Za-z0-9_@-]{1,35}$'
                THEN format('context language %s must be the code of a language, such as "de"', context -> 'language')
            WHEN jsonb_typeof(context -> 'trace') <> 'object'
                OR jsonb_path_exists(context -> 'trace', '$.* ? (@.type() != "string")')
                THEN format('context trace %s must be a JSON object of strings, such as {"traceparent": "00-..."}',
                    context -> 'trace')
            WHEN jsonb_typeof(context -> 'user') NOT IN ('string', 'number')
                THEN format('context user %s must be the id of a user: a string or a number', context -> 'user')
            WHEN jsonb_typeof(context -> 'vars') <> 'object'
                THEN format('context vars %s must be a JSON object', context -> 'vars')
        END;
    END IF;
    IF problem IS NOT NULL OR p_options - '{context,tenant}'::text[] = '{}' THEN
        RETURN problem;
    END IF;
    IF p_options ?| '{limit_key,group_key,search}' THEN
        problem := CASE
            WHEN jsonb_typeof(p_options -> 'limit_key') <> 'string'
                THEN format('limit_key %s must be a string', p_options -> 'limit_key')
            WHEN _pgqueue_key_problem(p_options ->> 'limit_key') IS NOT NULL
                THEN _pgqueue_key_problem(p_options ->> 'limit_key')
            WHEN jsonb_typeof(p_options -> 'group_key') <> 'string' OR p_options ->> 'group_key' = ''
                THEN format('group_key %s must be a string that is not empty', p_options -> 'group_key')
            WHEN length(p_options ->> 'group_key') > 200
                THEN format('group_key has %s characters, but a job can store only 200: use a hash of it',
                    length(p_options ->> 'group_key'))
            WHEN jsonb_typeof(p_options -> 'search') <> 'object'
                OR jsonb_path_exists(p_options -> 'search', '$.* ? (@.type() != "null" && @.type() != "number")')
                THEN format('search %s must be an object with the names of arguments and their places',
                    left((p_options -> 'search')::text, 100))
        END;
    END IF;
    IF problem IS NULL AND p_options ?| '{after,after_items,if_failed,batch}' THEN
        problem := CASE
            WHEN jsonb_typeof(p_options -> 'after') <> 'array'
                OR jsonb_path_exists(p_options -> 'after', '$[*] ? (@.type() != "number" || @ < 1
                    || @ > 9223372036854775807 || @.floor() != @)')
                THEN format('after %s must be an array of the ids of jobs and batches',
                    left((p_options -> 'after')::text, 100))
            WHEN jsonb_typeof(p_options -> 'after_items') <> 'array'
                OR jsonb_path_exists(p_options -> 'after_items', '$[*] ? (@.type() != "number" || @ < 1 || @ > 1000000
                    || @.floor() != @)')
                THEN format('after_items %s must be an array of places in the same call',
                    left((p_options -> 'after_items')::text, 100))
            WHEN coalesce(jsonb_array_length(p_options -> 'after'), 0)
                + coalesce(jsonb_array_length(p_options -> 'after_items'), 0) > 100
                THEN 'after has more than 100 jobs: make them members of a batch, and enqueue the job after the batch'
            WHEN p_options ? 'if_failed' AND NOT p_options ?| '{after,after_items}'
                THEN 'if_failed needs after'
            WHEN p_options -> 'if_failed' NOT IN ('"hold"', '"cancel"', '"run"')
                THEN format('if_failed %s must be "hold", "cancel" or "run"', p_options -> 'if_failed')
            WHEN jsonb_typeof(p_options -> 'batch') <> 'number' OR p_options ->> 'batch' !~ '^[1-9][0-9]{0,17}$'
                THEN format('batch %s must be the id of a batch', p_options -> 'batch')
            WHEN p_options ?| '{after,after_items,batch}' AND p_options ->> 'on_conflict' IN ('replace', 'earliest')
                THEN format('on_conflict "%s" changes the job that has the key, but that job keeps what it waits for '
                    'and its batch: use "existing" or "raise" with after or batch', p_options ->> 'on_conflict')
        END;
    END IF;
    IF problem IS NULL AND p_options ?| '{unique_key,unique_scope,unique_window,on_conflict}' THEN
        problem := CASE
            WHEN NOT p_options ? 'unique_key'
                THEN format('the option %s needs unique_key',
                    jsonb_path_query_first(
                        p_options, '$.keyvalue().key ? (@ starts with "unique_" || @ == "on_conflict")') #>> '{}')
            WHEN jsonb_typeof(p_options -> 'unique_key') <> 'string' OR p_options ->> 'unique_key' = ''
                THEN format('unique_key %s must be a string that is not empty', p_options -> 'unique_key')
            WHEN length(p_options ->> 'unique_key') > 200
                THEN format('unique_key has %s characters, but a job can store only 200: use a hash of it',
                    length(p_options ->> 'unique_key'))
            WHEN p_options -> 'unique_scope' NOT IN ('"waiting"', '"live"')
                THEN format('unique_scope %s must be "waiting" or "live"', p_options -> 'unique_scope')
            WHEN jsonb_typeof(p_options -> 'unique_window') <> 'number'
                THEN format('unique_window %s must be a number of seconds', p_options -> 'unique_window')
            WHEN NOT (p_options ->> 'unique_window')::numeric BETWEEN 0.000001 AND 3155760000
                THEN format('unique_window %s must be more than 0 seconds and at most 100 years',
                    p_options -> 'unique_window')
            WHEN p_options -> 'on_conflict' NOT IN ('"existing"', '"replace"', '"earliest"', '"raise"')
                THEN format('on_conflict %s must be "existing", "replace", "earliest" or "raise"',
                    p_options -> 'on_conflict')
        END;
    END IF;
    RETURN problem;
END $$;

-- Return the arguments of a call that are indexed, such as order_id=17: texts, numbers, booleans and null, each cut to
-- 200 characters. p_search has the names of the arguments, and the place of each, or null. NULL: there are none.
CREATE FUNCTION _pgqueue_searched(p_search jsonb, p_args jsonb, p_kwargs jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE
AS $$
    SELECT nullif(ARRAY(
        SELECT left(named.name || '=' || coalesce(given.value #>> '{}', 'null'), 200)
        FROM jsonb_each_text(p_search) AS named (name, place),
            LATERAL (SELECT coalesce(p_kwargs -> named.name, p_args -> named.place::integer) AS value) AS given
        WHERE jsonb_typeof(given.value) IN ('string', 'number', 'boolean', 'null')
    ), '{}')
$$;
