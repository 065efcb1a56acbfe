-- Jobs with marks have finished: do what depends on it. Unmarked jobs never come here. p_batches may have ended, too,
-- or not yet: pgqueue_close_batch.
--
-- Mark 1: the job has rows in pgqueue_step, which its row in history contains by now. Mark 8: it may have a row in
-- pgqueue_progress. Mark 4: its batch counts it, and may end with it. Mark 2: others wait for it. What waits for a
-- job or a batch becomes claimable if it waits for nothing else, or is cancelled if that was its condition. This may
-- end batches and other jobs in turn, so it goes on until nothing ends any more: in a loop, because recursion would
-- limit how many jobs may wait for each other.
--
-- Deadlocks: the rows of the jobs that end are locked first, then edges are deleted. Only what is left to others, at
-- the very end, is locked without being deleted (_pgqueue_unblock). Everything else that a session may hold for long is
-- skipped (_pgqueue_cut), or given up after a quarter of a second.
CREATE FUNCTION _pgqueue_settle(p_ended pgqueue_ended[], p_batches bigint[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ended pgqueue_ended[] := p_ended;
    batches bigint[] := '{}';
    others bigint[] := p_batches;
    member record;
    ends record;
    cut record;
    free bigint[] := '{}';
BEGIN
    LOOP
        DELETE FROM pgqueue_step AS step WHERE step.job_id = ANY (ARRAY(
            SELECT one.id FROM unnest(ended) AS one WHERE one.marks & 1 <> 0));
        IF EXISTS (SELECT FROM unnest(ended) AS one WHERE one.marks & 8 <> 0) THEN
            -- No job depends on that, so a role that may not delete it leaves the rows: a refusal here would be one of
            -- the outcome that ends the job.
            BEGIN
                DELETE FROM pgqueue_progress AS progress WHERE progress.job_id = ANY (ARRAY(
                    SELECT one.id FROM unnest(ended) AS one WHERE one.marks & 8 <> 0));
            EXCEPTION WHEN insufficient_privilege THEN
                NULL;
            END;
        END IF;
        FOR member IN
            SELECT one.batch, count(*) FILTER (WHERE one.outcome = 'done')::integer AS done,
                count(*) FILTER (WHERE one.outcome = 'failed')::integer AS failed,
                count(*) FILTER (WHERE one.outcome = 'cancelled')::integer AS cancelled
            FROM unnest(ended) AS one WHERE one.marks & 4 <> 0 GROUP BY one.batch
        LOOP
            PERFORM _pgqueue_count(member.batch, 0, member.done, member.failed, member.cancelled);
            batches := batches || member.batch;
        END LOOP;

        -- A failed job that is not kept cannot be retried.
        SELECT array_agg(one.id) AS ids, array_agg(one.outcome) AS outcomes,
            array_agg(one.outcome = 'failed' AND NOT EXISTS (
                SELECT FROM pgqueue_job_kept AS job WHERE job.id = one.id)
                AND NOT EXISTS (SELECT FROM pgqueue_batch AS batch WHERE batch.id = one.id)) AS final
        INTO ends FROM unnest(ended) AS one WHERE one.marks & 2 <> 0;
        IF ends.ids IS NULL AND batches || others <> '{}' THEN
            SELECT array_agg(over.id) AS ids, array_agg(over.outcome) AS outcomes, array_agg(over.is_final) AS final
            INTO ends FROM _pgqueue_end_batches(batches, others) AS over;
            batches := '{}';
            others := '{}';
        END IF;
        EXIT WHEN ends.ids IS NULL;

        SELECT one.free, one.ended INTO cut FROM _pgqueue_cut(ends.ids, ends.outcomes, ends.final) AS one;
        free := free || cut.free;
        ended := cut.ended;
    END LOOP;
    IF free <> '{}' THEN
        PERFORM _pgqueue_unblock(free);
    END IF;
END $$;

-- Let the jobs run that wait for nothing any more. Each has lost an edge, in this transaction or before.
--
-- Race: the last two parents of a child end at once. Neither sees that the other one has deleted its edge, and both
-- would leave the child to the other, so who leaves it to others locks, until its commit, a row that proves that there
-- are others: an edge that stands, that of the youngest parent, because it probably ends last. Who deletes that edge
-- waits for the lock, and its next statement sees everything. If others are deleting all that is left, all of them
-- queue for the row of the child, and the last one sees none. This needs a new snapshot for each statement. A cancel
-- under REPEATABLE READ fails with a serialization error instead, because it tries to lock an edge that is gone.
--
-- A job with a limit key joins its line at the end. A job whose task is paused is put aside by the claim. A later
-- run_after stays, and so does the time when the job expires.
CREATE FUNCTION _pgqueue_unblock(p_ids bigint[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ripe bigint[];
    now timestamptz;
    freed integer;
BEGIN
    ripe := ARRAY(
        SELECT DISTINCT child.id FROM unnest(p_ids) AS child (id)
        LEFT JOIN LATERAL (
            SELECT true AS stands FROM pgqueue_edge AS edge WHERE edge.child_id = child.id
            ORDER BY -edge.parent_id LIMIT 1 FOR KEY SHARE SKIP LOCKED
        ) AS other ON true
        WHERE other.stands IS NULL);
    IF ripe = '{}' THEN
        RETURN 0;
    END IF;
    ripe := _pgqueue_lock_children(ripe);
    now := clock_timestamp();
    UPDATE pgqueue_job_live AS job SET
        status = CASE WHEN job.attempts > 0 THEN 'retry' ELSE 'pending' END,
        run_after = greatest(job.run_after, now), waiting_reason = '',
        wait_position = CASE WHEN job.limit_key IS NOT NULL AND job.run_after <= now
            THEN nextval('pgqueue_job_id_seq') END
    WHERE job.id = ANY (ripe) AND starts_with(job.waiting_reason, 'waits for job')
        AND (
            SELECT edge.parent_id FROM pgqueue_edge AS edge WHERE edge.child_id = job.id
            ORDER BY -edge.parent_id LIMIT 1) IS NULL;
    GET DIAGNOSTICS freed = ROW_COUNT;
    RETURN freed;
END $$;

-- Jobs and batches have ended: delete the edges to what waited for them, except of failed ones to what holds until they
-- are retried. Cancel the children whose condition has not come true. Returns the other ones, for _pgqueue_unblock, and
-- the cancelled ones that have marks, for _pgqueue_settle. "gone" is a parent whose row was deleted, and
-- "dead" one that has failed for good.
--
-- Of each parent this takes at most 1,000 children, and leaves the rest to maintenance: the first edge that is left
-- says so. A report of a worker must not take seconds.
--
-- Race: another session has locked a child that is to be cancelled, and may wait for what the caller has locked, so
-- no session waits for a child here: its edge stays, and with it the child, until maintenance comes.
CREATE FUNCTION _pgqueue_cut(
    p_ids bigint[], p_outcomes text[],
    p_final boolean[],  -- failed, and never retried
    OUT free bigint[], OUT ended pgqueue_ended[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    most constant integer := 1000;
    due record;
    taken bigint[] := '{}';
    stays boolean[];  -- the edge, since its child is late, or lost and locked by another session
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
        taken := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.status <> 'running' AND job.id = ANY (ARRAY(
                SELECT edge.child FROM unnest(due.children, due.lost, due.late) AS edge (child, lost, late)
                WHERE edge.lost AND NOT edge.late))
            ORDER BY job.id FOR UPDATE SKIP LOCKED);
    END IF;
    IF due.some_late OR due.some_lost THEN
        stays := ARRAY(
            SELECT edge.late OR edge.lost AND edge.child <> ALL (taken) AND EXISTS (
                SELECT FROM pgqueue_job_live AS job WHERE job.id = edge.child)
            FROM unnest(due.children, due.lost, due.late) WITH ORDINALITY AS edge (child, lost, late, place)
            ORDER BY edge.place);
        UPDATE pgqueue_edge AS edge SET overdue = CASE WHEN over.final THEN 'dead' ELSE over.outcome END
        FROM unnest(due.parents, due.children, stays) AS given (parent, child, stays)
        JOIN unnest(p_ids, p_outcomes, p_final) AS over (id, outcome, final) ON over.id = given.parent
        WHERE given.stays AND edge.parent_id = given.parent AND edge.child_id = given.child;
    END IF;
    -- Race: another parent of a child has left the child to this one, and has locked this edge until its commit.
    DELETE FROM pgqueue_edge AS edge USING unnest(due.parents, due.children, stays) AS given (parent, child, stays)
    WHERE given.stays IS NOT TRUE
        AND edge.parent_id = ANY (p_ids) AND edge.parent_id = given.parent AND edge.child_id = given.child;
    free := ARRAY(
        SELECT DISTINCT edge.child FROM unnest(due.children, due.lost, due.late) AS edge (child, lost, late)
        WHERE NOT edge.lost AND NOT edge.late);

    IF taken <> '{}' THEN
        SELECT dropped.marked INTO ended
        FROM _pgqueue_drop(taken, ARRAY(
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

-- Members of batches are retried: they no longer count as over, and neither do their batches. What has been started by
-- the end of such a batch is not started again, but what holds until the batch succeeds still waits for that.
--
-- Race: the batch is ending at this moment, without a look at a member that is not committed yet. Whoever ends it has
-- locked its row, so this waits, and then sees its end. If this is first, its lock keeps others from ending the
-- batch, as for members that are added (_pgqueue_enter_batch).
CREATE FUNCTION _pgqueue_reopen(p_members pgqueue_ended[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    batches bigint[] := ARRAY(
        SELECT DISTINCT member.batch FROM unnest(p_members) AS member ORDER BY member.batch);
BEGIN
    PERFORM FROM pgqueue_batch AS batch WHERE batch.id = ANY (batches) ORDER BY batch.id FOR KEY SHARE;
    PERFORM FROM pgqueue_batch AS batch
    WHERE batch.id = ANY (batches) AND (batch.finished_at IS NOT NULL OR batch.cancel_requested_at IS NOT NULL)
    ORDER BY batch.id FOR NO KEY UPDATE;
    UPDATE pgqueue_batch AS batch SET finished_at = NULL, outcome = '', cancel_requested_at = NULL
    WHERE batch.id = ANY (batches) AND (batch.finished_at IS NOT NULL OR batch.cancel_requested_at IS NOT NULL);
    PERFORM _pgqueue_count(
        counted.batch, 0, -counted.done::integer, -counted.failed::integer, -counted.cancelled::integer)
    FROM (
        SELECT member.batch, count(*) FILTER (WHERE member.outcome = 'done') AS done,
            count(*) FILTER (WHERE member.outcome = 'failed') AS failed,
            count(*) FILTER (WHERE member.outcome = 'cancelled') AS cancelled
        FROM unnest(p_members) AS member GROUP BY member.batch ORDER BY member.batch
    ) AS counted;
END $$;
