-- What the options of new jobs say about other jobs: the batches that they join, and the jobs and batches after which
-- they run. This comes before they are inserted, and returns for each: its marks, its batch, its parents (an array as
-- text, because arrays in an array must have equal lengths), and why it waits (NULL: it does not wait). When they are
-- inserted, _pgqueue_linked does the rest.
--
-- A job can only wait for one that exists when it is enqueued, so there are no cycles.
--
-- after_items names jobs of the same call by their places, which begin with 1.
CREATE FUNCTION _pgqueue_link(
    p_ids bigint[], p_options jsonb[], p_batch bigint,
    p_first integer,  -- the place of the first one, for messages; NULL: there is only one
    OUT marks smallint[], OUT batches bigint[], OUT parents text[], OUT reasons text[],
    -- For _pgqueue_linked: the pairs of a job, by its place, and a parent, and what has become of the parent.
    OUT places integer[], OUT edge_parents bigint[], OUT if_failed text[], OUT states text[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    named bigint[];
    bad record;
BEGIN
    batches := ARRAY(
        SELECT coalesce((given.options ->> 'batch')::bigint, p_batch)
        FROM unnest(p_options) WITH ORDINALITY AS given (options, place) ORDER BY given.place);
    PERFORM _pgqueue_enter_batch(one.id)
    FROM (
        SELECT DISTINCT given.id FROM unnest(batches) AS given (id) WHERE given.id IS NOT NULL ORDER BY given.id
    ) AS one;

    named := ARRAY(
        SELECT DISTINCT parent.id::bigint FROM unnest(p_options) AS given (options)
        CROSS JOIN LATERAL jsonb_array_elements_text(given.options -> 'after') AS parent (id));
    IF named <> '{}' THEN
        -- Without a history, the commit could not know how a parent has ended, so it must not end before.
        PERFORM _pgqueue_mark(ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job CROSS JOIN pgqueue_ring AS ring
            LEFT JOIN pgqueue_queue AS queue ON queue.name = job.queue_name
            WHERE job.id = ANY (named) AND least(
                coalesce(queue.retention, ring.retention), coalesce(queue.failed_retention, ring.failed_retention)
            ) <= interval '0'));
    END IF;
    -- In the order in which the parents were given, for their results.
    SELECT array_agg(pair.place), array_agg(pair.parent), array_agg(pair.if_failed), array_agg(pair.state)
    INTO places, edge_parents, if_failed, states
    FROM (
        SELECT given.place, parent.id AS parent, coalesce(given.options ->> 'if_failed', 'hold') AS if_failed, CASE
            WHEN parent.item NOT BETWEEN 1 AND given.place - 1 OR p_options[parent.item] ? 'unique_key' THEN 'bad'
            WHEN parent.item IS NOT NULL THEN 'inner'
            WHEN known.state IN ('live', 'gone') THEN known.state
            WHEN known.state = 'done' OR given.options ->> 'if_failed' = 'run' THEN 'free'
            ELSE 'live' END AS state  -- if it has failed or was cancelled, the commit settles that
        FROM unnest(p_options) WITH ORDINALITY AS given (options, place)
        CROSS JOIN LATERAL (
            SELECT one.id::bigint, NULL::integer AS item, min(one.nth) AS nth
            FROM jsonb_array_elements_text(given.options -> 'after') WITH ORDINALITY AS one (id, nth) GROUP BY 1
            UNION ALL
            SELECT DISTINCT p_ids[one.item::integer], one.item::integer, 100 + one.item::integer
            FROM jsonb_array_elements_text(given.options -> 'after_items') AS one (item)
        ) AS parent
        LEFT JOIN (
            SELECT one.id, _pgqueue_parent_state(one.id) AS state FROM unnest(named) AS one (id) OFFSET 0
        ) AS known ON known.id = parent.id AND parent.item IS NULL
        ORDER BY given.place, parent.nth
    ) AS pair;

    SELECT pair.place, pair.parent, pair.state INTO bad
    FROM unnest(places, edge_parents, states) AS pair (place, parent, state)
    WHERE pair.state IN ('gone', 'bad') ORDER BY pair.place, pair.state DESC, pair.parent LIMIT 1;
    IF bad.state = 'gone' THEN
        RAISE EXCEPTION 'pgqueue: %there is no job or batch %, so nothing can be enqueued after it',
            coalesce('item ' || p_first + bad.place - 1 || ': ', ''), bad.parent
            USING ERRCODE = '23Q06',
                HINT = 'It was never committed in this database, or it is finished and its retention has passed.';
    ELSIF bad.state = 'bad' THEN
        RAISE EXCEPTION 'pgqueue: %after_items must name earlier items of the same call that have no unique_key',
            coalesce('item ' || p_first + bad.place - 1 || ': ', '')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT pair.place, batches[pair.place] AS batch INTO bad
    FROM unnest(places, edge_parents, states) AS pair (place, parent, state)
    WHERE batches[pair.place] IS NOT NULL AND pair.state <> 'inner'
    GROUP BY pair.place HAVING _pgqueue_cycle(batches[pair.place], array_agg(pair.parent))
    ORDER BY pair.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'pgqueue: %a job of batch % cannot run after something that waits for this batch',
            coalesce('item ' || p_first + bad.place - 1 || ': ', ''), bad.batch
            USING ERRCODE = '23Q07', HINT = 'Leave out the batch, or what the job is to run after.';
    END IF;

    SELECT array_agg(CASE WHEN given.batch IS NULL THEN 0 ELSE 4 END
            | CASE WHEN given.id IN (SELECT unnest(edge_parents)) THEN 2 ELSE 0 END ORDER BY given.place),
        array_agg(made.parents ORDER BY given.place),
        array_agg(CASE WHEN made.waits IS NOT NULL THEN _pgqueue_wait_reason(made.waits) END ORDER BY given.place)
    INTO marks, parents, reasons
    FROM unnest(p_ids, batches) WITH ORDINALITY AS given (id, batch, place)
    LEFT JOIN (
        SELECT pair.place, array_agg(pair.parent ORDER BY pair.nth)::text AS parents,
            array_agg(pair.parent) FILTER (WHERE pair.state <> 'free') AS waits
        FROM unnest(places, edge_parents, states) WITH ORDINALITY AS pair (place, parent, state, nth)
        GROUP BY pair.place
    ) AS made ON made.place = given.place;
END $$;

-- New jobs that name other jobs, or a batch, are inserted: add their edges, and count the members that were added. A
-- job that met a twin with its unique key was not inserted. p_held: the jobs that have the keys now, the new ones or
-- their twins.
--
-- The parents are noted in a setting until the end of the transaction, which locks them, and settles the ones that are
-- over (_pgqueue_attach), so a job whose parent was cancelled before is cancelled, too. With an error instead, it would
-- matter whether a parent ends a moment earlier or later.
--
-- What a call that has met a twin says about other jobs must not be lost: the twin joins its batch, and must wait
-- already for what it runs after. Otherwise the call is refused, as if on_conflict was 'raise'. A finished twin
-- needs no batch to wait for it. This comes last, since a twin may be an earlier item of the same call.
--
-- Race: the twin starts or ends at the same moment. The UPDATE waits for that, and does not find a finished twin.
-- If the UPDATE is first, whoever ends the twin waits, and then sees its batch.
CREATE FUNCTION _pgqueue_linked(
    p_ids bigint[], p_held bigint[], p_outcomes text[], p_options jsonb[], p_batches bigint[],
    p_places integer[], p_parents bigint[], p_if_failed text[], p_states text[],
    p_first integer  -- the place of the first one, for messages; NULL: there is only one
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    attached text;
    met record;
    problem text;
BEGIN
    PERFORM _pgqueue_count(added.batch, added.jobs::integer, 0, 0, 0)
    FROM (
        SELECT job.batch, count(*) AS jobs FROM unnest(p_batches, p_outcomes) AS job (batch, outcome)
        WHERE job.batch IS NOT NULL AND job.outcome = 'created' GROUP BY job.batch ORDER BY job.batch
    ) AS added;
    SELECT string_agg(DISTINCT pair.parent::text, ',') INTO attached
    FROM unnest(p_places, p_parents, p_states) AS pair (place, parent, state)
    WHERE pair.state = 'live' AND p_outcomes[pair.place] = 'created';
    IF attached IS NOT NULL THEN
        PERFORM set_config(
            'pgqueue.attached', concat_ws(',', nullif(current_setting('pgqueue.attached', true), ''), attached), true);
    END IF;
    INSERT INTO pgqueue_edge (parent_id, child_id, if_failed)
    SELECT pair.parent, p_ids[pair.place], pair.if_failed
    FROM unnest(p_places, p_parents, p_if_failed, p_states) AS pair (place, parent, if_failed, state)
    WHERE pair.state IN ('live', 'inner') AND p_outcomes[pair.place] = 'created';

    FOR met IN
        SELECT given.* FROM unnest(p_held, p_outcomes, p_options, p_batches)
            WITH ORDINALITY AS given (twin, outcome, options, batch, place)
        WHERE given.outcome <> 'created' AND given.options ->> 'on_conflict' IS DISTINCT FROM 'raise'
        ORDER BY given.twin, given.place  -- so that two calls do not wait for each other
    LOOP
        problem := NULL;
        IF met.batch IS NOT NULL THEN
            UPDATE pgqueue_job_live AS job SET batch = met.batch, marks = job.marks | 4
            WHERE job.id = met.twin AND job.batch IS NULL;
            IF FOUND THEN
                PERFORM _pgqueue_count(met.batch, 1, 0, 0, 0);
            ELSIF EXISTS (SELECT FROM pgqueue_job_live AS job WHERE job.id = met.twin AND job.batch <> met.batch) THEN
                problem := 'and is in another batch';
            END IF;
        END IF;
        IF EXISTS (
            SELECT FROM unnest(p_places, p_parents, p_states) AS pair (place, parent, state)
            WHERE pair.place = met.place AND pair.state <> 'free' AND NOT EXISTS (
                SELECT FROM pgqueue_edge AS edge WHERE edge.child_id = met.twin AND edge.parent_id = pair.parent)
        ) THEN
            problem := 'and does not wait for what this call runs after';
        END IF;
        IF problem IS NOT NULL THEN
            RAISE EXCEPTION 'pgqueue: %job % has the unique key %, %',
                coalesce('item ' || p_first + met.place - 1 || ': ', ''), met.twin,
                quote_literal(met.options ->> 'unique_key'), problem
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'pgqueue_job_unique',
                    HINT = 'Enqueue it without after and batch, or with another key.';
        END IF;
    END LOOP;
END $$;

-- Lock the live ones of the jobs until the end of the transaction, and mark them: others wait for them. Returns
-- them. They are locked in one pass, in the order of id. If all have the mark already, a weak lock against their end is
-- enough, which others may share. With p_skips, jobs that another session has locked are left out: for a caller that
-- holds locks of other jobs already.
CREATE FUNCTION _pgqueue_mark(p_ids bigint[], p_skips boolean DEFAULT false) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    live bigint[];
BEGIN
    IF p_skips THEN
        live := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids)
            ORDER BY job.id FOR NO KEY UPDATE SKIP LOCKED);
    ELSIF EXISTS (SELECT FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) AND job.marks & 2 = 0) THEN
        live := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) ORDER BY job.id FOR NO KEY UPDATE);
    ELSE
        RETURN ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) AND job.marks & 2 <> 0
            ORDER BY job.id FOR KEY SHARE);
    END IF;
    UPDATE pgqueue_job_live AS job SET marks = job.marks | 2 WHERE job.id = ANY (live) AND job.marks & 2 = 0;
    RETURN live;
END $$;

-- Why a job waits that was enqueued after others. The first words distinguish such jobs from jobs that wait for a
-- limit or for the end of a pause (_pgqueue_unblock, _pgqueue_repair_edges).
CREATE FUNCTION _pgqueue_wait_reason(p_parents bigint[]) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT string_agg(format('waits for %s%s %s%s',
            CASE WHEN kind.are_batches THEN 'jobs of batch' ELSE 'job' END,
            CASE WHEN cardinality(kind.ids) > 1 THEN CASE WHEN kind.are_batches THEN 'es' ELSE 's' END END,
            array_to_string(kind.ids[1:5], ', '),
            CASE WHEN cardinality(kind.ids) > 5 THEN format(' and %s more', cardinality(kind.ids) - 5) END
        ), ', and ' ORDER BY kind.are_batches)
    FROM (
        SELECT batch.id IS NOT NULL AS are_batches, array_agg(given.id ORDER BY given.id) AS ids
        FROM unnest(p_parents) AS given (id) LEFT JOIN pgqueue_batch AS batch ON batch.id = given.id GROUP BY 1
    ) AS kind
$$;

-- Whether jobs that join this batch and run after these jobs and batches would wait for themselves. A job waits only
-- for what exists when it is enqueued, so only a batch can close a circle: it waits for members that are added later.
-- Without a job that waits for the batch there is none. Members of the batch were looked at when they were added.
--
-- Race: two transactions close one circle of two batches together, and do not see each other. Both batches then stay
-- open, where people see them.
CREATE FUNCTION _pgqueue_cycle(p_batch bigint, p_parents bigint[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT FROM pgqueue_edge AS edge WHERE edge.parent_id = p_batch) AND EXISTS (
        WITH RECURSIVE before (id) AS (
            SELECT unnest(p_parents)
            UNION
            SELECT earlier.id
            FROM before CROSS JOIN LATERAL (
                SELECT edge.parent_id AS id FROM pgqueue_edge AS edge WHERE edge.child_id = before.id
                UNION ALL
                SELECT job.id FROM pgqueue_job_live AS job WHERE job.batch = before.id AND job.status = 'blocked'
            ) AS earlier
            WHERE before.id <> p_batch AND NOT EXISTS (
                SELECT FROM pgqueue_job_live AS job WHERE job.id = before.id AND job.batch = p_batch)
        )
        SELECT FROM before WHERE before.id = p_batch)
$$;

-- The transaction ends in which jobs were enqueued after others: mark their parents, so that these settle the edges
-- when they end. This happens at the commit, for all parents at once and in the order of id. Otherwise a transaction
-- that stays open would hold up the reports of workers, and two calls in one transaction could deadlock with a worker
-- that reports several jobs.
--
-- Race: a parent ends at this moment. Its finish waits for the lock of its row, and then sees the edges, which are
-- committed by then. If it was first, this waits, and settles the edges itself. Batches are locked after the jobs,
-- in the order in which an end of a member and its batch locks them.
--
-- Race: a parent that has failed is retried at this moment. The retry waits for the lock of its row in history, and
-- then sees the edge (pgqueue_retry). If it was first, the job is live, so this looks again. It holds locks of other
-- jobs by then, so it waits for no session: a parent that ends without the mark is found by maintenance
-- (_pgqueue_repair_edges).
CREATE FUNCTION _pgqueue_attach() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    parents bigint[] := string_to_array(nullif(current_setting('pgqueue.attached', true), ''), ',');
    rest bigint[];
    over pgqueue_ended[];
BEGIN
    -- After SET CONSTRAINTS ALL IMMEDIATE, a later enqueue of this transaction must fire again.
    PERFORM set_config('pgqueue.attach_once', '', true), set_config('pgqueue.attached', '', true);
    rest := ARRAY(SELECT DISTINCT given.id FROM unnest(parents) AS given (id));
    FOR attempt IN 1..10 LOOP
        rest := ARRAY(SELECT unnest(rest) EXCEPT SELECT unnest(_pgqueue_mark(rest, attempt > 1)));
        EXIT WHEN rest = '{}';
        PERFORM FROM pgqueue_batch AS batch WHERE batch.id = ANY (rest) ORDER BY batch.id FOR SHARE;
        PERFORM FROM pgqueue_job_kept AS job WHERE job.id = ANY (rest) AND job.status = 'failed'
        ORDER BY job.id FOR KEY SHARE;
        SELECT array_agg(parent.id) FILTER (WHERE parent.state = 'live' AND batch.id IS NULL),
            over || array_agg(ROW(parent.id, parent.state, 2, NULL)::pgqueue_ended)
                FILTER (WHERE parent.state <> 'live')
        INTO rest, over
        FROM (
            SELECT given.id, _pgqueue_parent_state(given.id) AS state FROM unnest(rest) AS given (id) OFFSET 0
        ) AS parent
        LEFT JOIN pgqueue_batch AS batch ON batch.id = parent.id;
        EXIT WHEN rest IS NULL;
    END LOOP;
    IF over IS NOT NULL THEN
        PERFORM _pgqueue_settle(over);
    END IF;
    RETURN NULL;
END $$;
