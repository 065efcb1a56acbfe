-- What the options of new jobs say about other jobs: the batches that they join, and the jobs and batches after which they
-- run. This comes before they are inserted, and returns for each: its marks, its batch, its parents (an array as text,
-- because arrays in an array must have equal lengths), and why it waits (NULL: it does not wait). Those that can never
-- start, because a parent was cancelled, are lost: the caller inserts and then cancels them (lose_v1.sql). With an error
-- instead, it would matter whether a parent ends a moment earlier or later.
--
-- after_items names jobs of the same call by their places, which begin with 1.
CREATE FUNCTION pgqueue_link_v1(
    p_ids bigint[], p_options jsonb[], p_batch bigint,
    p_first integer,  -- the place of the first one, for messages; NULL: there is only one
    OUT marks smallint[], OUT batches bigint[], OUT parents text[], OUT reasons text[], OUT lost bigint[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    outer_pairs record;
    inner_pairs record;
    states text[];
    bad record;
BEGIN
    batches := ARRAY(
        SELECT coalesce((given.options ->> 'batch')::bigint, p_batch)
        FROM unnest(p_options) WITH ORDINALITY AS given (options, place) ORDER BY given.place);
    PERFORM pgqueue_enter_batch_v1(one.id)
    FROM (SELECT DISTINCT given.id FROM unnest(batches) AS given (id) WHERE given.id IS NOT NULL ORDER BY given.id) AS one;

    SELECT array_agg(pair.place) AS places, array_agg(p_ids[pair.place]) AS children, array_agg(pair.parent) AS parents,
        array_agg(coalesce(pair.options ->> 'if_failed', 'hold')) AS if_failed
    INTO outer_pairs
    FROM (
        SELECT DISTINCT given.place, given.options, parent.id::bigint AS parent
        FROM unnest(p_options) WITH ORDINALITY AS given (options, place)
        CROSS JOIN LATERAL jsonb_array_elements_text(given.options -> 'after') AS parent (id)
    ) AS pair;
    IF outer_pairs.places IS NOT NULL THEN
        states := pgqueue_attach_v1(outer_pairs.children, outer_pairs.parents, outer_pairs.if_failed);
        SELECT pair.place, pair.parent INTO bad
        FROM unnest(outer_pairs.places, outer_pairs.parents, states) AS pair (place, parent, state)
        WHERE pair.state = 'unknown' ORDER BY pair.place, pair.parent LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'pgqueue: %there is no job or batch %, so nothing can be enqueued after it',
                coalesce(format('item %s: ', p_first + bad.place - 1), ''), bad.parent
                USING ERRCODE = '23Q06',
                    HINT = 'It was never committed in this database, or it is over and its retention has passed.';
        END IF;
    END IF;

    SELECT array_agg(pair.place) AS places, array_agg(pair.parent) AS parent_places,
        array_agg(p_ids[pair.parent]) AS parents, array_agg(p_ids[pair.place]) AS children,
        array_agg(coalesce(pair.options ->> 'if_failed', 'hold')) AS if_failed,
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
            coalesce(format('item %s: ', p_first + inner_pairs.bad - 1), '')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_edge (parent_id, child_id, if_failed)
    SELECT pair.parent, pair.child, pair.if_failed
    FROM unnest(inner_pairs.parents, inner_pairs.children, inner_pairs.if_failed) AS pair (parent, child, if_failed);

    marks := ARRAY(
        SELECT (CASE WHEN given.batch IS NULL THEN 0 ELSE 4 END
            | CASE WHEN given.place = ANY (inner_pairs.parent_places) THEN 2 ELSE 0 END)::smallint
        FROM unnest(batches) WITH ORDINALITY AS given (batch, place) ORDER BY given.place);
    SELECT array_agg(made.parents ORDER BY given.place), array_agg(
        CASE WHEN made.waits IS NOT NULL THEN pgqueue_wait_reason_v1(made.waits) END ORDER BY given.place)
    INTO parents, reasons
    FROM unnest(p_ids) WITH ORDINALITY AS given (id, place)
    LEFT JOIN (
        SELECT pair.place, array_agg(pair.parent ORDER BY pair.parent)::text AS parents,
            array_agg(pair.parent ORDER BY pair.parent) FILTER (WHERE pair.state <> 'free') AS waits
        FROM (
            SELECT * FROM unnest(outer_pairs.places, outer_pairs.parents, states) AS one (place, parent, state)
            UNION ALL
            SELECT one.place, one.parent, 'wait' FROM unnest(inner_pairs.places, inner_pairs.parents) AS one (place, parent)
        ) AS pair
        GROUP BY pair.place
    ) AS made ON made.place = given.place;
    lost := ARRAY(
        SELECT DISTINCT pair.child FROM unnest(outer_pairs.children, states) AS pair (child, state)
        WHERE pair.state = 'lost');
END $$;
