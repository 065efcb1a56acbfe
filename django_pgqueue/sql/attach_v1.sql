-- The transaction ends in which jobs were enqueued after others: mark their parents, so that these settle the edges when
-- they end. This happens at the commit, for all parents at once and in the order of id. Otherwise a transaction that
-- stays open would hold up the reports of workers, and two calls in one transaction could deadlock with a worker that
-- reports several jobs.
--
-- Race: a parent ends at this moment. Its finish waits for the lock of its row, and then sees the edges, which are
-- committed by then. If it was first, this waits, and settles the edges itself. Batches are locked after the jobs,
-- in the order in which an end of a member and its batch locks them.
--
-- Race: a parent that has failed is retried at this moment. The retry waits for the lock of its row in history, and then
-- sees the edge (retry.sql). If it was first, the job is live, so this looks again. It holds locks of other jobs by
-- then, so it waits for nobody: a parent that ends without the mark is found by maintenance (repair_edges_v1.sql).
CREATE FUNCTION pgqueue_attach_v1() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    parents bigint[] := string_to_array(nullif(current_setting('pgqueue.attached', true), ''), ',');
    rest bigint[];
    over pgqueue_ended_v1[];
BEGIN
    -- After SET CONSTRAINTS ALL IMMEDIATE, a later enqueue of this transaction must fire again.
    PERFORM set_config('pgqueue.attach_once', '', true), set_config('pgqueue.attached', '', true);
    rest := ARRAY(SELECT DISTINCT given.id FROM unnest(parents) AS given (id));
    FOR attempt IN 1..10 LOOP
        rest := ARRAY(SELECT unnest(rest) EXCEPT SELECT unnest(pgqueue_mark_v1(rest, attempt > 1)));
        EXIT WHEN rest = '{}';
        PERFORM FROM pgqueue_batch AS batch WHERE batch.id = ANY (rest) ORDER BY batch.id FOR SHARE;
        PERFORM FROM pgqueue_job_kept AS job WHERE job.id = ANY (rest) AND job.status = 'failed'
        ORDER BY job.id FOR KEY SHARE;
        SELECT array_agg(parent.id) FILTER (WHERE parent.state = 'live' AND batch.id IS NULL),
            over || array_agg(ROW(parent.id, parent.state, 2, NULL)::pgqueue_ended_v1) FILTER (WHERE parent.state <> 'live')
        INTO rest, over
        FROM (SELECT given.id, pgqueue_parent_state_v1(given.id) AS state FROM unnest(rest) AS given (id) OFFSET 0) AS parent
        LEFT JOIN pgqueue_batch AS batch ON batch.id = parent.id;
        EXIT WHEN rest IS NULL;
    END LOOP;
    IF over IS NOT NULL THEN
        PERFORM pgqueue_settle_v1(over);
    END IF;
    RETURN NULL;
END $$;
