-- Jobs and batches have ended: delete the edges to what waited for them, except of failed ones to what holds until they
-- are retried. Cancel the children whose condition has not come true. Returns the other ones, for pgqueue_unblock_v1, and
-- those of the cancelled ones that have marks, for pgqueue_settle_v1. "gone" is a parent that was deleted by hand, and
-- "dead" one that has failed for good.
--
-- Of each parent this takes at most 1,000 children, and leaves the rest to maintenance: the first edge that is left says so.
-- A report of a worker must not take seconds.
--
-- Race: another session has locked a child that is to be cancelled, and may wait for what the caller has locked. So nobody waits
-- for a child here: its edge stays, and with it the child, until maintenance comes.
CREATE FUNCTION pgqueue_cut_v1(
    p_ids bigint[], p_outcomes text[],
    p_final boolean[],  -- failed, and never retried
    OUT free bigint[], OUT ended pgqueue_ended_v1[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    most constant integer := 1000;
    due record;
    gone record;
    unlucky bigint[];
    taken bigint[] := '{}';
BEGIN
    SELECT array_agg(edge.parent_id) AS parents, array_agg(edge.child_id) AS children,
        array_agg(edge.nth > most) AS late, bool_or(edge.nth > most) AS some_late,
        array_agg(edge.if_failed <> 'run' AND over.outcome <> 'done') AS lost,
        bool_or(edge.if_failed <> 'run' AND over.outcome <> 'done') AS some_lost
    INTO due
    FROM unnest(p_ids, p_outcomes, p_final) AS over (id, outcome, final)
    CROSS JOIN LATERAL (
        SELECT one.parent_id, one.child_id, one.if_failed, row_number() OVER (ORDER BY one.child_id) AS nth
        FROM pgqueue_edge AS one
        WHERE one.parent_id = over.id AND (over.outcome <> 'failed' OR over.final OR one.if_failed <> 'hold')
        ORDER BY one.child_id LIMIT most + 1
    ) AS edge;
    free := '{}';
    IF due.parents IS NULL THEN
        RETURN;
    END IF;

    IF due.some_lost THEN
        unlucky := ARRAY(
            SELECT edge.child FROM unnest(due.children, due.lost, due.late) AS edge (child, lost, late)
            WHERE edge.lost AND NOT edge.late);
        taken := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (unlucky) AND job.status <> 'running'
            ORDER BY job.id FOR UPDATE SKIP LOCKED);
    END IF;
    IF due.some_late OR due.some_lost THEN
        SELECT array_agg(given.parent) FILTER (WHERE NOT given.stays) AS parents,
            array_agg(given.child) FILTER (WHERE NOT given.stays) AS children,
            array_agg(given.parent) FILTER (WHERE given.stays) AS left_parents,
            array_agg(given.child) FILTER (WHERE given.stays) AS left_children
        INTO gone
        FROM (
            SELECT edge.parent, edge.child, edge.late OR edge.lost AND edge.child <> ALL (taken) AND EXISTS (
                SELECT FROM pgqueue_job_live AS job WHERE job.id = edge.child) AS stays
            FROM unnest(due.parents, due.children, due.lost, due.late) AS edge (parent, child, lost, late)
        ) AS given;
        UPDATE pgqueue_edge AS edge SET overdue = CASE WHEN over.final THEN 'dead' ELSE over.outcome END
        FROM unnest(gone.left_parents, gone.left_children) AS given (parent, child)
        JOIN unnest(p_ids, p_outcomes, p_final) AS over (id, outcome, final) ON over.id = given.parent
        WHERE edge.parent_id = given.parent AND edge.child_id = given.child;
    ELSE
        SELECT due.parents AS parents, due.children AS children INTO gone;
    END IF;
    -- Race: another parent of a child has left the child to this one, and has locked this edge until its commit.
    DELETE FROM pgqueue_edge AS edge USING unnest(gone.parents, gone.children) AS given (parent, child)
    WHERE edge.parent_id = ANY (p_ids) AND edge.parent_id = given.parent AND edge.child_id = given.child;
    free := ARRAY(
        SELECT DISTINCT edge.child FROM unnest(due.children, due.lost, due.late) AS edge (child, lost, late)
        WHERE NOT edge.lost AND NOT edge.late);

    IF taken <> '{}' THEN
        SELECT dropped.marked INTO ended
        FROM pgqueue_drop_v1(taken, ARRAY(
            SELECT (
                SELECT format('%s, after which it was enqueued, %s',
                    CASE WHEN EXISTS (SELECT FROM pgqueue_batch AS batch WHERE batch.id = over.id)
                        THEN 'batch ' WHEN over.outcome = 'gone' THEN 'job or batch ' ELSE 'job ' END || over.id,
                    CASE over.outcome WHEN 'cancelled' THEN 'was cancelled' WHEN 'gone' THEN 'was deleted'
                        ELSE 'failed' END)
                FROM unnest(due.parents, due.children, due.lost) AS edge (parent, child, lost)
                JOIN unnest(p_ids, p_outcomes) AS over (id, outcome) ON over.id = edge.parent
                WHERE edge.child = given.id AND edge.lost ORDER BY over.id LIMIT 1
            )
            FROM unnest(taken) WITH ORDINALITY AS given (id, place) ORDER BY given.place)) AS dropped;
    END IF;
END $$;
