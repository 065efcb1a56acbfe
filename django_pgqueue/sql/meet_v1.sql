-- Calls have met a twin that has their unique key. What they say about other jobs must not be lost: the twin joins their
-- batch, and must wait already for what they run after. Otherwise the call is refused, as if on_conflict was 'raise'. A twin
-- that is over needs no batch to wait for it. Comes after pgqueue_linked_v1: a twin may be an earlier item of the same call.
--
-- Race: the twin starts or ends at the same moment. The UPDATE waits for that, and does not find a twin that is over. If
-- the UPDATE is first, whoever ends the twin waits, and then sees its batch.
CREATE FUNCTION pgqueue_meet_v1(
    p_twins bigint[], p_outcomes text[], p_options jsonb[], p_batches bigint[],
    p_places integer[], p_parents bigint[], p_states text[],
    p_first integer  -- the place of the first one, for messages; NULL: there is only one
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    met record;
    problem text;
BEGIN
    FOR met IN
        SELECT given.* FROM unnest(p_twins, p_outcomes, p_options, p_batches)
            WITH ORDINALITY AS given (twin, outcome, options, batch, place)
        WHERE given.outcome <> 'created' AND given.options ->> 'on_conflict' IS DISTINCT FROM 'raise'
        ORDER BY given.twin, given.place  -- so that two calls do not wait for each other
    LOOP
        problem := NULL;
        IF met.batch IS NOT NULL THEN
            UPDATE pgqueue_job_live AS job SET batch = met.batch, marks = job.marks | 4
            WHERE job.id = met.twin AND job.batch IS NULL;
            IF FOUND THEN
                PERFORM pgqueue_count_v1(met.batch, 1, 0, 0, 0);
            ELSIF EXISTS (
                SELECT FROM pgqueue_job_live AS job WHERE job.id = met.twin AND job.batch <> met.batch
            ) THEN
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
