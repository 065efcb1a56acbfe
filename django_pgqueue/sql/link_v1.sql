-- What the options of new jobs say about other jobs: the batches that they join, and the jobs and batches after which they
-- run. This comes before they are inserted, and returns for each: its marks, its batch, its parents (an array as text,
-- because arrays in an array must have equal lengths), and why it waits (NULL: it does not wait). When they are inserted,
-- pgqueue_linked_v1 does the rest.
--
-- A job can only wait for one that exists when it is enqueued, so there are no cycles.
--
-- after_items names jobs of the same call by their places, which begin with 1.
CREATE FUNCTION pgqueue_link_v1(
    p_ids bigint[], p_options jsonb[], p_batch bigint,
    p_first integer,  -- the place of the first one, for messages; NULL: there is only one
    OUT marks smallint[], OUT batches bigint[], OUT parents text[], OUT reasons text[],
    -- For pgqueue_linked_v1: the pairs of a job, by its place, and a parent, and what has become of the parent.
    OUT places integer[], OUT edge_parents bigint[], OUT if_failed text[], OUT states text[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    outer_pairs record;
    inner_pairs record;
    bad record;
BEGIN
    batches := ARRAY(
        SELECT coalesce((given.options ->> 'batch')::bigint, p_batch)
        FROM unnest(p_options) WITH ORDINALITY AS given (options, place) ORDER BY given.place);
    PERFORM pgqueue_enter_batch_v1(one.id)
    FROM (SELECT DISTINCT given.id FROM unnest(batches) AS given (id) WHERE given.id IS NOT NULL ORDER BY given.id) AS one;

    SELECT array_agg(pair.place) AS places, array_agg(pair.parent) AS parents,
        array_agg(coalesce(pair.options ->> 'if_failed', 'hold')) AS if_failed, NULL::text[] AS states
    INTO outer_pairs
    FROM (
        SELECT DISTINCT given.place, given.options, parent.id::bigint AS parent
        FROM unnest(p_options) WITH ORDINALITY AS given (options, place)
        CROSS JOIN LATERAL jsonb_array_elements_text(given.options -> 'after') AS parent (id)
    ) AS pair;
    IF outer_pairs.places IS NOT NULL THEN
        -- Without a history, nobody could tell at the commit how a parent has ended, so it must not end before.
        PERFORM pgqueue_mark_v1(ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job CROSS JOIN pgqueue_ring AS ring
            LEFT JOIN pgqueue_queue AS queue ON queue.name = job.queue_name
            WHERE job.id = ANY (outer_pairs.parents) AND least(
                coalesce(queue.retention, ring.retention), coalesce(queue.failed_retention, ring.failed_retention)
            ) <= interval '0'));
        SELECT array_agg(given.place) AS places, array_agg(given.parent) AS parents,
            array_agg(given.if_failed) AS if_failed, array_agg(CASE
                WHEN parent.state IN ('live', 'gone') THEN parent.state
                WHEN parent.state = 'done' OR given.if_failed = 'run' THEN 'free'
                ELSE 'live' END) AS states  -- if it has failed or was cancelled, the commit settles that
        INTO outer_pairs
        FROM unnest(outer_pairs.places, outer_pairs.parents, outer_pairs.if_failed) AS given (place, parent, if_failed)
        JOIN (
            SELECT one.id, pgqueue_parent_state_v1(one.id) AS state
            FROM (SELECT DISTINCT unnest(outer_pairs.parents) AS id) AS one OFFSET 0
        ) AS parent ON parent.id = given.parent;
        SELECT pair.place, pair.parent INTO bad
        FROM unnest(outer_pairs.places, outer_pairs.parents, outer_pairs.states) AS pair (place, parent, state)
        WHERE pair.state = 'gone' ORDER BY pair.place, pair.parent LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'pgqueue: %there is no job or batch %, so nothing can be enqueued after it',
                coalesce('item ' || p_first + bad.place - 1 || ': ', ''), bad.parent
                USING ERRCODE = '23Q06',
                    HINT = 'It was never committed in this database, or it is over and its retention has passed.';
        END IF;
        SELECT given.place, batches[given.place] AS batch INTO bad
        FROM unnest(p_options) WITH ORDINALITY AS given (options, place)
        WHERE batches[given.place] IS NOT NULL AND given.options ? 'after' AND pgqueue_cycle_v1(
            batches[given.place],
            ARRAY(SELECT named.id::bigint FROM jsonb_array_elements_text(given.options -> 'after') AS named (id)))
        ORDER BY given.place LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'pgqueue: %a job of batch % cannot run after something that waits for this batch',
                coalesce('item ' || p_first + bad.place - 1 || ': ', ''), bad.batch
                USING ERRCODE = '23Q07', HINT = 'Leave out the batch, or what the job is to run after.';
        END IF;
    END IF;

    SELECT array_agg(pair.place) AS places, array_agg(p_ids[pair.parent]) AS parents,
        array_agg(pair.parent) AS parent_places, array_agg(coalesce(pair.options ->> 'if_failed', 'hold')) AS if_failed,
        min(pair.place) FILTER (WHERE NOT pair.parent BETWEEN 1 AND pair.place - 1
            OR p_options[pair.parent] ? 'unique_key') AS bad
    INTO inner_pairs
    FROM (
        SELECT DISTINCT given.place, given.options, parent.place::integer AS parent
        FROM unnest(p_options) WITH ORDINALITY AS given (options, place)
        CROSS JOIN LATERAL jsonb_array_elements_text(given.options -> 'after_items') AS parent (place)
    ) AS pair;
    IF inner_pairs.bad IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %after_items must name earlier items of the same call that have no unique_key',
            coalesce('item ' || p_first + inner_pairs.bad - 1 || ': ', '')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    marks := ARRAY(
        SELECT (CASE WHEN given.batch IS NULL THEN 0 ELSE 4 END
            | CASE WHEN given.place = ANY (inner_pairs.parent_places) THEN 2 ELSE 0 END)::smallint
        FROM unnest(batches) WITH ORDINALITY AS given (batch, place) ORDER BY given.place);
    places := outer_pairs.places || inner_pairs.places;
    edge_parents := outer_pairs.parents || inner_pairs.parents;
    if_failed := outer_pairs.if_failed || inner_pairs.if_failed;
    states := outer_pairs.states || array_fill('inner'::text, ARRAY[coalesce(cardinality(inner_pairs.places), 0)]);
    SELECT array_agg(made.parents ORDER BY given.place), array_agg(
        CASE WHEN made.waits IS NOT NULL THEN pgqueue_wait_reason_v1(made.waits) END ORDER BY given.place)
    INTO parents, reasons
    FROM unnest(p_ids) WITH ORDINALITY AS given (id, place)
    LEFT JOIN (
        SELECT pair.place, array_agg(pair.parent ORDER BY array_position(ARRAY(
                SELECT named.id::bigint FROM jsonb_array_elements_text(p_options[pair.place] -> 'after') AS named (id)
            ), pair.parent), pair.parent)::text AS parents,  -- as they were given, for their results
            array_agg(pair.parent ORDER BY pair.parent) FILTER (WHERE pair.state <> 'free') AS waits
        FROM unnest(places, edge_parents, states) AS pair (place, parent, state) GROUP BY pair.place
    ) AS made ON made.place = given.place;
END $$;
