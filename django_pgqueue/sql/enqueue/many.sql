-- Enqueue a chunk of jobs in one statement, and return their ids in the order of the arrays. The first invalid
-- job raises an error that names its place, before anything is inserted. The outcomes are NULL if no job has options:
-- then all were created.
--
-- Race: two statements with the same unique keys in different orders would wait for each other, so jobs with a key are
-- inserted one by one in the order of the keys: a statement that waits for a key holds only smaller ones.
--
-- Of the jobs of a limit key that are due in a queue, the first one is pending, and the others are blocked in line
-- at once: they are committed together, so it will release them. A limit that skips or replaces jobs has no such line,
-- and neither has a job with a unique key, which may not be inserted: the claim decides.
CREATE FUNCTION _pgqueue_enqueue_many(
    p_first integer, p_task_paths text[], p_args jsonb[], p_kwargs jsonb[], p_metadata jsonb[],
    p_queue_names text[], p_priorities integer[], p_run_after timestamptz[], p_delays double precision[],
    p_expires_after double precision[], p_max_attempts integer[], p_timeouts integer[], p_on_lost text[],
    p_max_bytes integer, p_options jsonb[],  -- NULL: none
    p_context jsonb DEFAULT NULL,  -- of all jobs
    p_batch bigint DEFAULT NULL,   -- of all jobs that have no other
    p_tenant text DEFAULT NULL,    -- of all jobs that have no other
    OUT ids bigint[], OUT outcomes text[]
) LANGUAGE plpgsql SET search_path FROM CURRENT
SET standard_conforming_strings = on AS $$
DECLARE
    bad record;
    held record;
    now timestamptz := clock_timestamp();
    due timestamptz;
    place integer;
    statuses text[];
    new_ids bigint[];
    is_linked boolean := EXISTS (
        SELECT FROM unnest(p_options) AS given (options) WHERE given.options ?| '{after,after_items,batch}');
    link record;  -- of NULL if no job names other jobs, or a batch: the columns are the same for all then
    all_marks smallint := CASE WHEN p_batch IS NULL THEN 0 ELSE 4 END;
    shared jsonb := CASE WHEN p_context IS NULL THEN '{}' ELSE jsonb_build_object('context', p_context) END
        || CASE WHEN p_tenant IS NULL THEN '{}' ELSE jsonb_build_object('tenant', p_tenant) END;
BEGIN
    SELECT checked.place, checked.problem INTO bad
    FROM (
        SELECT given.place, coalesce(_pgqueue_problem(
            task_path, args, kwargs, metadata, queue_name, priority, run_after, NULL, max_attempts, timeout,
            on_lost, p_max_bytes
        ), CASE WHEN given.options IS NOT NULL THEN _pgqueue_options_problem(given.options) END) AS problem
        FROM unnest(
            p_task_paths, p_args, p_kwargs, p_metadata, p_queue_names, p_priorities, p_run_after,
            p_max_attempts, p_timeouts, p_on_lost, p_options
        ) WITH ORDINALITY AS given (
            task_path, args, kwargs, metadata, queue_name, priority, run_after, max_attempts, timeout, on_lost,
            options, place
        )
    ) AS checked
    WHERE checked.problem IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'pgqueue: item %: %', p_first + bad.place - 1, bad.problem
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF session_user <> current_user OR current_setting('role') <> 'none' THEN
        -- What Python passes has been checked, but a role that writes SQL can pass anything.
        SELECT _pgqueue_options_problem(shared) AS problem INTO bad;
        IF bad.problem IS NOT NULL THEN
            RAISE EXCEPTION 'pgqueue: %', bad.problem USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF p_options IS NOT NULL THEN
            p_options := ARRAY(
                SELECT CASE WHEN given.options IS NOT NULL THEN _pgqueue_enqueue_only(shared || given.options) END
                FROM unnest(p_options) WITH ORDINALITY AS given (options, place) ORDER BY given.place);
        END IF;
        shared := coalesce(_pgqueue_enqueue_only(shared, p_batch), '{}');
        p_context := shared -> 'context';
        p_tenant := shared ->> 'tenant';
    END IF;
    IF p_options IS NOT NULL AND (p_tenant IS NOT NULL OR EXISTS (
        SELECT FROM unnest(p_options) AS given (options) WHERE given.options ? 'tenant'
    )) THEN
        p_options := ARRAY(
            SELECT _pgqueue_of_tenant(given.options, coalesce(given.options ->> 'tenant', p_tenant))
            FROM unnest(p_options) WITH ORDINALITY AS given (options, place) ORDER BY given.place);
    END IF;
    IF p_options IS NOT NULL THEN
        statuses := ARRAY(
            SELECT CASE WHEN given.is_due AND coalesce(setting.on_full, 'wait') = 'wait' AND row_number() OVER (
                PARTITION BY given.key, given.queue_name, given.is_due ORDER BY given.priority DESC, given.place
            ) > 1 THEN 'blocked' ELSE 'pending' END
            FROM (
                SELECT one.*, one.options ->> 'limit_key' AS key,
                    one.options ? 'limit_key' AND NOT one.options ?| '{unique_key,after,after_items}'
                        AND coalesce(one.run_after, now + one.delay * interval '1 second', now) <= now AS is_due
                FROM unnest(p_options, p_queue_names, p_priorities, p_run_after, p_delays)
                    WITH ORDINALITY AS one (options, queue_name, priority, run_after, delay, place)
            ) AS given
            LEFT JOIN pgqueue_limit AS setting ON setting.name = split_part(given.key, '/', 1)
            ORDER BY given.place);
    END IF;
    ids := ARRAY(SELECT nextval('pgqueue_job_id_seq') FROM generate_subscripts(p_task_paths, 1));
    SELECT * INTO link FROM _pgqueue_link(ids, p_options, p_batch, p_first) WHERE is_linked;
    IF p_batch IS NOT NULL AND NOT is_linked THEN
        PERFORM _pgqueue_enter_batch(p_batch);
    END IF;
    INSERT INTO pgqueue_job_live (
        id, task_path, args, kwargs, metadata, queue_name, priority, run_after, expires_at, enqueued_at,
        max_attempts, timeout, on_lost, limit_key, wait_position, group_key, tenant, context, status, waiting_reason,
        marks, batch, parents, searched
    )
    SELECT given.id, given.task_path, given.args, given.kwargs, given.metadata, given.queue_name,
        given.priority, timed.due, timed.due + given.expires_after * interval '1 second', now,
        given.max_attempts, given.timeout, given.on_lost, given.options ->> 'limit_key',
        CASE WHEN given.options ? 'limit_key' AND timed.due <= now AND given.reason IS NULL THEN given.id END,
        given.options ->> 'group_key', coalesce(given.options ->> 'tenant', p_tenant),
        coalesce(given.options -> 'context', p_context),
        CASE WHEN given.reason IS NOT NULL THEN 'blocked' ELSE coalesce(given.status, 'pending') END,
        CASE WHEN given.reason IS NOT NULL THEN given.reason
            WHEN given.status = 'blocked' THEN 'waits for its limit key' ELSE '' END,
        coalesce(given.marks, all_marks), coalesce(given.batch, p_batch), given.parents::bigint[],
        CASE WHEN given.options ? 'search'
            THEN _pgqueue_searched(given.options -> 'search', given.args, given.kwargs) END
    FROM unnest(
        ids, p_task_paths, p_args, p_kwargs, p_metadata, p_queue_names, p_priorities, p_run_after, p_delays,
        p_expires_after, p_max_attempts, p_timeouts, p_on_lost, p_options, statuses, link.marks, link.batches,
        link.parents, link.reasons
    ) AS given (
        id, task_path, args, kwargs, metadata, queue_name, priority, run_after, delay, expires_after,
        max_attempts, timeout, on_lost, options, status, marks, batch, parents, reason
    ), LATERAL (
        SELECT greatest(coalesce(given.run_after, now + given.delay * interval '1 second'), now) AS due
    ) AS timed
    WHERE NOT coalesce(given.options ? 'unique_key', false);

    IF p_options IS NULL THEN
        IF p_batch IS NOT NULL THEN
            PERFORM _pgqueue_count(p_batch, cardinality(ids), 0, 0, 0);
        END IF;
        RETURN;
    END IF;
    new_ids := ids;
    outcomes := array_fill('created'::text, ARRAY[cardinality(ids)]);
    FOR place IN
        SELECT given.place FROM unnest(p_options) WITH ORDINALITY AS given (options, place)
        WHERE given.options ? 'unique_key' ORDER BY given.options ->> 'unique_key' COLLATE "C", given.place
    LOOP
        due := greatest(coalesce(p_run_after[place], now + p_delays[place] * interval '1 second'), now);
        SELECT one.id, one.outcome INTO held FROM _pgqueue_insert_unique(
            ids[place], p_task_paths[place], p_args[place], p_kwargs[place], p_metadata[place], p_queue_names[place],
            p_priorities[place], due, due + p_expires_after[place] * interval '1 second', now, p_max_attempts[place],
            p_timeouts[place], p_on_lost[place], shared || p_options[place],
            coalesce(link.marks[place], all_marks), coalesce(link.batches[place], p_batch),
            link.parents[place]::bigint[], link.reasons[place]) AS one;
        ids[place] := held.id;
        outcomes[place] := held.outcome;
    END LOOP;
    IF link.batches IS NOT NULL OR p_batch IS NOT NULL THEN
        PERFORM _pgqueue_linked(
            new_ids, ids, outcomes, p_options, coalesce(link.batches, array_fill(p_batch, ARRAY[cardinality(ids)])),
            link.places, link.edge_parents, link.if_failed, link.states, p_first);
    END IF;
END $$;
