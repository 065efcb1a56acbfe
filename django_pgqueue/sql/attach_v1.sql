-- Let new jobs wait for jobs and batches: one edge for each pair of a child and a parent that has not ended. Returns the
-- state of each pair: wait, free (the parent has ended well), lost (the child can never start) or unknown (there is no
-- such job or batch). A parent that has failed keeps its edge if the child holds.
--
-- A job can only wait for one that exists when it is enqueued, so there are no cycles.
--
-- Race: a parent ends at this moment. Its finish waits for the lock of its row, and then sees the edges. If the finish is
-- first, this waits, and finds the parent in history; and if it is not there either, it may have been retried meanwhile,
-- so this looks again. Batches are locked first: who ends one gives up soon, but who ends a job waits
-- (lock_batches_v1.sql).
CREATE FUNCTION pgqueue_attach_v1(p_children bigint[], p_parents bigint[], p_if_failed text[])
RETURNS text[] LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    wanted bigint[] := ARRAY(SELECT DISTINCT given.id FROM unnest(p_parents) AS given (id));
    live bigint[];
    known record;
    states text[];
BEGIN
    FOR attempt IN 1..10 LOOP
        PERFORM FROM pgqueue_batch AS batch WHERE batch.id = ANY (wanted) ORDER BY batch.id FOR SHARE;
        live := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (wanted) ORDER BY job.id FOR KEY SHARE);
        PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (live) AND job.marks & 2 = 0
        ORDER BY job.id FOR NO KEY UPDATE;
        UPDATE pgqueue_job_live AS job SET marks = job.marks | 2 WHERE job.id = ANY (live) AND job.marks & 2 = 0;
        SELECT array_agg(over.id) AS ids, array_agg(over.outcome) AS outcomes, array_agg(over.is_final) AS final
        INTO known
        FROM (
            SELECT batch.id, batch.outcome::text AS outcome, batch.outcome = 'failed' AND pgqueue_is_final_v1(batch.id, (
                SELECT sum(tally.failed) FROM pgqueue_tally AS tally WHERE tally.batch_id = batch.id)) AS is_final
            FROM pgqueue_batch AS batch WHERE batch.id = ANY (wanted)
        ) AS over;
        EXIT WHEN cardinality(live) + coalesce(cardinality(known.ids), 0) = cardinality(wanted);
        SELECT known.ids || array_agg(past.id), known.outcomes || array_agg(past.status::text),
            known.final || array_agg(false)
        INTO known
        FROM (
            -- Race: a retry takes the job out of history. It waits for this lock, and then sees the edge.
            SELECT job.id, job.status FROM pgqueue_job AS job WHERE job.id = ANY (wanted) AND job.shelf <> 0
            ORDER BY job.id FOR KEY SHARE
        ) AS past;
        EXIT WHEN cardinality(live) + coalesce(cardinality(known.ids), 0) = cardinality(wanted);
    END LOOP;

    states := ARRAY(
        SELECT CASE
            WHEN given.parent = ANY (live) OR over.outcome = '' THEN 'wait'
            WHEN over.outcome IS NULL THEN 'unknown'
            WHEN over.outcome = 'done' OR given.if_failed = 'run' THEN 'free'
            WHEN over.outcome = 'failed' AND given.if_failed = 'hold' AND NOT over.final THEN 'wait'
            ELSE 'lost' END
        FROM unnest(p_parents, p_if_failed) WITH ORDINALITY AS given (parent, if_failed, place)
        LEFT JOIN unnest(known.ids, known.outcomes, known.final) AS over (id, outcome, final)
            ON over.id = given.parent
        ORDER BY given.place);
    INSERT INTO pgqueue_edge (parent_id, child_id, if_failed)
    SELECT given.parent, given.child, given.if_failed
    FROM unnest(p_children, p_parents, p_if_failed, states) AS given (child, parent, if_failed, state)
    WHERE given.state = 'wait' ORDER BY given.parent, given.child
    ON CONFLICT DO NOTHING;
    RETURN states;
END $$;
