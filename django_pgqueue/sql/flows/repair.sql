-- A round of maintenance over at most p_limit live batches, after the batch p_after: end the ones that have
-- no live member. Returns the last batch that was looked at (NULL: there are no more), how many it looked at, and how
-- many ended.
--
-- This is for ends that were left to a session that did not come: a member that was added and rolled back,
-- a session that held the row for too long, and jobs whose rows were deleted.
CREATE FUNCTION _pgqueue_repair_batches(
    p_after bigint, p_limit integer, OUT looked integer, OUT reached bigint, OUT ended integer
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    stuck bigint[];
BEGIN
    looked := 0;
    ended := 0;
    IF NOT _pgqueue_on_duty('batches') THEN
        RETURN;
    END IF;
    SELECT count(*), CASE WHEN count(*) = p_limit THEN max(page.id) END, array_agg(page.id ORDER BY page.id) FILTER (
        WHERE NOT page.is_open AND (
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.batch = page.id ORDER BY -job.id LIMIT 1) IS NULL)
    INTO looked, reached, stuck
    FROM (
        SELECT batch.id, batch.is_open FROM pgqueue_batch AS batch
        WHERE batch.finished_at IS NULL AND batch.id > p_after ORDER BY batch.id LIMIT p_limit
    ) AS page;
    IF stuck IS NOT NULL THEN
        PERFORM _pgqueue_settle('{}', stuck);
        ended := (SELECT count(*) FROM pgqueue_batch AS batch WHERE batch.id = ANY (stuck)
            AND batch.finished_at IS NOT NULL);
    END IF;
END $$;

-- A round of maintenance over at most p_limit jobs that wait for others, after the job p_after: let those run that wait
-- for nothing any more, and cancel jobs of which a parent was deleted. Returns the last job that was looked at (NULL:
-- there are no more), how many it looked at, and how many edges and jobs it has settled.
--
-- This is for what was left to maintenance: children after the first 1,000 of a parent, and children that another
-- session had locked. And for jobs whose rows were deleted. The end of a parent whose children were left is noted at
-- one of its edges, and counts for all of them: its row may be gone because its history is off or its retention has
-- passed.
CREATE FUNCTION _pgqueue_repair_edges(
    p_after bigint, p_limit integer, OUT looked integer, OUT reached bigint, OUT settled integer
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    children bigint[];
    free bigint[];
    late pgqueue_ended[];
BEGIN
    looked := 0;
    settled := 0;
    IF NOT _pgqueue_on_duty('edges') THEN
        RETURN;
    END IF;
    SELECT array_agg(ROW(edge.parent_id, edge.overdue, 2, NULL)::pgqueue_ended) INTO late
    FROM (
        SELECT DISTINCT ON (one.parent_id) one.parent_id, one.overdue FROM pgqueue_edge AS one
        WHERE one.overdue IS NOT NULL ORDER BY one.parent_id LIMIT 100
    ) AS edge;
    IF late IS NOT NULL THEN
        -- A parent that lives was retried: what still waits for it waits for its next end.
        UPDATE pgqueue_edge AS edge SET overdue = NULL
        FROM unnest(late) AS parent
        WHERE edge.parent_id = parent.id AND edge.overdue IS NOT NULL AND _pgqueue_parent_state(parent.id) = 'live';
        late := ARRAY(SELECT parent FROM unnest(late) AS parent WHERE _pgqueue_parent_state(parent.id) <> 'live');
        PERFORM _pgqueue_settle(late);
        settled := cardinality(late);
    END IF;

    SELECT count(*), CASE WHEN count(*) = p_limit THEN max(page.id) END, array_agg(page.id)
    INTO looked, reached, children
    FROM (
        SELECT job.id FROM pgqueue_job_live AS job
        WHERE job.status = 'blocked' AND starts_with(job.waiting_reason, 'waits for job') AND job.id > p_after
        ORDER BY job.id LIMIT p_limit
    ) AS page;
    IF children IS NULL THEN
        RETURN;
    END IF;
    late := ARRAY(
        SELECT ROW(parent.id, parent.state, 2, NULL)::pgqueue_ended
        FROM (
            SELECT over.id, coalesce(nullif(_pgqueue_parent_state(over.id), 'gone'), (
                    SELECT min(noted.overdue) FROM pgqueue_edge AS noted
                    WHERE noted.parent_id = over.id AND noted.overdue IS NOT NULL), 'gone') AS state, over.only_holds
            FROM (
                SELECT edge.parent_id AS id, bool_and(edge.if_failed = 'hold') AS only_holds FROM pgqueue_edge AS edge
                WHERE edge.child_id = ANY (children) AND edge.overdue IS NULL GROUP BY edge.parent_id
            ) AS over
            OFFSET 0
        ) AS parent
        WHERE parent.state NOT IN ('live', 'failed') OR parent.state = 'failed' AND NOT parent.only_holds);
    IF late <> '{}' THEN
        PERFORM _pgqueue_settle(late);
    END IF;
    free := ARRAY(
        SELECT child.id FROM unnest(children) AS child (id)
        WHERE (
            SELECT edge.parent_id FROM pgqueue_edge AS edge WHERE edge.child_id = child.id
            ORDER BY -edge.parent_id LIMIT 1) IS NULL);
    settled := settled + cardinality(late) + _pgqueue_unblock(free);
END $$;

-- Delete at most p_limit batches that ended longer ago than any of their members is kept, and return how many.
-- What still held until such a batch succeeds can never run, and is cancelled.
--
-- Race: a member is retried at this moment. It locks the row of its batch (_pgqueue_reopen), so this skips it.
CREATE FUNCTION _pgqueue_sweep_batches(p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    before timestamptz;
    gone bigint[];
    orphaned pgqueue_ended[];
BEGIN
    SELECT clock_timestamp() - greatest(
        ring.retention, ring.failed_retention,
        interval '1 day',  -- a transaction may be open that enqueues something after it
        (SELECT greatest(max(queue.retention), max(queue.failed_retention)) FROM pgqueue_queue AS queue))
    INTO STRICT before FROM pgqueue_ring AS ring;
    gone := ARRAY(
        SELECT batch.id FROM pgqueue_batch AS batch
        WHERE batch.finished_at IS NOT NULL AND batch.finished_at < before
            AND (SELECT job.id FROM pgqueue_job_live AS job WHERE job.batch = batch.id ORDER BY -job.id LIMIT 1) IS NULL
        ORDER BY batch.finished_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    IF gone = '{}' THEN
        RETURN 0;
    END IF;
    DELETE FROM pgqueue_batch AS batch WHERE batch.id = ANY (gone) AND batch.finished_at IS NOT NULL;
    DELETE FROM pgqueue_tally AS tally WHERE tally.batch_id = ANY (gone);
    orphaned := ARRAY(
        SELECT ROW(over.id, 'dead', 2, NULL)::pgqueue_ended FROM unnest(gone) AS over (id)
        WHERE EXISTS (SELECT FROM pgqueue_edge AS edge WHERE edge.parent_id = over.id));
    IF orphaned <> '{}' THEN
        PERFORM _pgqueue_settle(orphaned);
    END IF;
    RETURN cardinality(gone);
END $$;
