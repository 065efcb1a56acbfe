-- Open a batch, and return its id. It does not end before it is closed (pgqueue_close_batch), even if it has no members
-- yet.
CREATE FUNCTION pgqueue_open_batch(name text DEFAULT '') RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    opened bigint;
BEGIN
    IF length(pgqueue_open_batch.name) > 200 THEN
        RAISE EXCEPTION 'pgqueue: the name of a batch has at most 200 characters, not %',
            length(pgqueue_open_batch.name)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_batch (name) VALUES (coalesce(pgqueue_open_batch.name, '')) RETURNING id INTO opened;
    RETURN opened;
END $$;

-- Close a batch: it ends with its last member, and now if it has none that live. Members that run may still add others.
-- Returns whether it was open.
--
-- Race: members end at the same moment. If they have seen that the batch is open, they hold its row until their commit,
-- so this waits for them, and sees their end. Or they have left the end of the batch to a member that lives. Whoever
-- ends the last one waits for the row that this locks, and sees that the batch is closed.
CREATE FUNCTION pgqueue_close_batch(id bigint) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    was_open boolean;
BEGIN
    SELECT batch.is_open INTO was_open FROM pgqueue_batch AS batch
    WHERE batch.id = pgqueue_close_batch.id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: there is no batch %', pgqueue_close_batch.id USING ERRCODE = '23Q06',
            HINT = 'It was never committed, or it is finished and its retention has passed.';
    END IF;
    IF was_open THEN
        UPDATE pgqueue_batch AS batch SET is_open = false WHERE batch.id = pgqueue_close_batch.id;
        PERFORM _pgqueue_settle('{}', ARRAY[pgqueue_close_batch.id]);
    END IF;
    RETURN was_open;
END $$;

-- Cancel a batch: it is closed, it ends as cancelled, and so do its members that have not started. Running ones are
-- asked to stop. No more members may be added. Returns how many members were cancelled or asked to stop.
--
-- Race: another session adds members, and has not committed yet. The row of the batch is locked against them, too, so
-- this waits, and then sees their members. It holds nothing else yet, because such a transaction may go on to end a
-- member. A member that ends meanwhile leaves the end of the batch to this after a quarter of a second
-- (_pgqueue_lock_batches).
CREATE FUNCTION pgqueue_cancel_batch(id bigint) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    known pgqueue_batch;
    cancelled integer;
BEGIN
    SELECT * INTO known FROM pgqueue_batch AS batch WHERE batch.id = pgqueue_cancel_batch.id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: there is no batch %', pgqueue_cancel_batch.id USING ERRCODE = '23Q06',
            HINT = 'It was never committed, or it is finished and its retention has passed.';
    ELSIF known.finished_at IS NOT NULL THEN
        RETURN 0;
    END IF;
    UPDATE pgqueue_batch AS batch SET is_open = false, cancel_requested_at = coalesce(
        batch.cancel_requested_at, clock_timestamp()) WHERE batch.id = pgqueue_cancel_batch.id;
    cancelled := cardinality(pgqueue_cancel(ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job WHERE job.batch = pgqueue_cancel_batch.id ORDER BY job.id)));
    PERFORM _pgqueue_settle('{}', ARRAY[pgqueue_cancel_batch.id]);  -- it may have had no member that lives
    RETURN cancelled;
END $$;

-- Retry the members of a batch that have failed, and return how many. The batch is not over any more, and what holds
-- until it succeeds still waits for that.
CREATE FUNCTION pgqueue_retry_batch(id bigint) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM pgqueue_batch AS batch WHERE batch.id = pgqueue_retry_batch.id) THEN
        RAISE EXCEPTION 'pgqueue: there is no batch %', pgqueue_retry_batch.id USING ERRCODE = '23Q06',
            HINT = 'It was never committed, or it is finished and its retention has passed.';
    END IF;
    RETURN cardinality(pgqueue_retry(ARRAY(
        SELECT job.id FROM pgqueue_job_kept AS job
        WHERE job.batch = pgqueue_retry_batch.id AND job.status = 'failed')));
END $$;

-- How many members a batch has, how many of them are not over, and how the others ended. NULL: there is no such batch.
CREATE FUNCTION pgqueue_batch_counts(
    id bigint, OUT added bigint, OUT live bigint, OUT done bigint, OUT failed bigint, OUT cancelled bigint
) RETURNS SETOF record LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT counted.added, counted.added - counted.done - counted.failed - counted.cancelled, counted.done,
        counted.failed, counted.cancelled
    FROM (
        SELECT coalesce(sum(tally.added), 0) AS added, coalesce(sum(tally.done), 0) AS done,
            coalesce(sum(tally.failed), 0) AS failed, coalesce(sum(tally.cancelled), 0) AS cancelled
        FROM pgqueue_tally AS tally WHERE tally.batch_id = pgqueue_batch_counts.id
    ) AS counted
    WHERE EXISTS (SELECT FROM pgqueue_batch AS batch WHERE batch.id = pgqueue_batch_counts.id)
$$;

-- Add members to a batch: this must come before they are inserted. Raises an error if the batch has ended.
--
-- Race: the batch is ending at this moment. Whoever ends it has locked its row, so this waits, and then sees the
-- end. If this is first, its lock keeps others from ending the batch until the members are committed, without a wait
-- for that (_pgqueue_lock_batches).
CREATE FUNCTION _pgqueue_enter_batch(p_batch bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    known pgqueue_batch;
BEGIN
    PERFORM FROM pgqueue_batch AS batch
    WHERE batch.id = p_batch AND batch.finished_at IS NULL AND batch.cancel_requested_at IS NULL FOR KEY SHARE;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO known FROM pgqueue_batch AS batch WHERE batch.id = p_batch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: there is no batch %', p_batch USING ERRCODE = '23Q06',
            HINT = 'It was never committed, or it is finished and its retention has passed.';
    END IF;
    RAISE EXCEPTION 'pgqueue: batch % is finished', p_batch USING ERRCODE = '23Q05',
        HINT = 'Keep it open until all of its members are added, add them from a member that runs, or open '
            'a new batch.',
        DETAIL = CASE WHEN known.finished_at IS NULL THEN 'It was cancelled.'
            ELSE format('It has ended as %s at %s.', known.outcome, known.finished_at) END;
END $$;

-- Count members of a batch that were added, have ended, or (negative numbers) are retried. The numbers never decide if
-- the batch has finished, only how it ended: two sessions that both see the last number would end it twice, or never.
--
-- Race: another session counts at the same moment, and holds its slot until its commit. This takes another one, so
-- no session waits. Under another isolation than READ COMMITTED, a slot may have changed since the snapshot, which
-- would be a serialization error, so a new one is added.
CREATE FUNCTION _pgqueue_count(
    p_batch bigint, p_added integer, p_done integer, p_failed integer, p_cancelled integer
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        UPDATE pgqueue_tally AS tally SET
            added = tally.added + p_added, done = tally.done + p_done, failed = tally.failed + p_failed,
            cancelled = tally.cancelled + p_cancelled
        WHERE tally.batch_id = p_batch AND tally.slot = (
            SELECT free.slot FROM pgqueue_tally AS free WHERE free.batch_id = p_batch
            ORDER BY free.slot LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED);
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO pgqueue_tally (batch_id, slot, added, done, failed, cancelled)
    SELECT batch.id, _pgqueue_random(), p_added, p_done, p_failed, p_cancelled
    FROM pgqueue_batch AS batch WHERE batch.id = p_batch;  -- its retention may have ended, but not that of a member
END $$;

-- Lock the batches that may end now, and return them. Two that end the last members of a batch queue here, and
-- behind a transaction that enqueues something after the batch: but not for longer than a quarter of a second, as in
-- _pgqueue_lock_children. Maintenance looks at batches that were left (_pgqueue_repair_batches).
--
-- Race: another session adds members. That is a lock, too, but a weak one (_pgqueue_enter_batch), and this does not
-- wait for it: the members that are added will end the batch. If they are rolled back, maintenance does.
CREATE FUNCTION _pgqueue_lock_batches(p_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms' AS $$
BEGIN
    BEGIN
        PERFORM FROM pgqueue_batch AS batch WHERE batch.id = ANY (p_ids) ORDER BY batch.id FOR NO KEY UPDATE;
    EXCEPTION WHEN lock_not_available THEN
        NULL;  -- only the others
    END;
    RETURN ARRAY(
        SELECT batch.id FROM pgqueue_batch AS batch WHERE batch.id = ANY (p_ids)
        ORDER BY batch.id FOR UPDATE SKIP LOCKED);
END $$;

-- End the batches that have no live member and are not open, and return them, with their outcomes. is_final:
-- no retry can change the outcome any more, because a member that failed was not kept.
--
-- Race: the last two members end at once, and neither sees the end of the other, so who leaves the end of the batch to
-- others locks, until its commit, a member that lives: the youngest, because it probably ends last. Who ends that
-- member waits for the lock, and its next statement sees everything. If all members that are left are being ended by
-- others at this moment, all of these queue for the row of the batch, and the last one sees no member. This needs a
-- new snapshot for each statement. Under REPEATABLE READ it is a serialization error, as in _pgqueue_unblock.
--
-- Members that no session has counted as finished, although none lives, count as cancelled: their rows were deleted, so
-- such a batch is not a success. Retention cannot look like this: it only removes members that were counted at their
-- ends.
--
-- Race: a member is added, ends or is retried at this moment. Its row and its count are committed together, and one
-- statement reads both, under the lock of the batch.
--
-- The first are batches of which members have ended. The others are looked at by the session that has locked their
-- rows, or who comes again (pgqueue_close_batch, _pgqueue_repair_batches): who ends the last member then queues for the
-- row, and no member has to be locked.
CREATE FUNCTION _pgqueue_end_batches(p_batches bigint[], p_others bigint[])
RETURNS TABLE (id bigint, outcome text, is_final boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    ripe bigint[];
    ended record;
BEGIN
    ripe := ARRAY(
        SELECT DISTINCT given.id FROM unnest(p_batches) AS given (id)
        LEFT JOIN LATERAL (
            SELECT true AS stands FROM pgqueue_job_live AS job WHERE job.batch = given.id
            ORDER BY -job.id LIMIT 1 FOR KEY SHARE SKIP LOCKED
        ) AS member ON true
        WHERE member.stands IS NULL
        UNION
        SELECT given.id FROM unnest(p_others) AS given (id)
        WHERE (SELECT job.id FROM pgqueue_job_live AS job WHERE job.batch = given.id ORDER BY -job.id LIMIT 1) IS NULL);
    IF ripe = '{}' THEN
        RETURN;
    END IF;
    ripe := _pgqueue_lock_batches(ripe);
    FOR ended IN
        UPDATE pgqueue_batch AS batch SET finished_at = clock_timestamp(), outcome = CASE
            WHEN batch.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN counted.failed > 0 THEN 'failed'
            WHEN counted.cancelled > 0 OR counted.deleted > 0 THEN 'cancelled'
            ELSE 'done' END
        FROM unnest(ripe) AS given (id)
        CROSS JOIN LATERAL (
            SELECT sum(tally.failed) AS failed, sum(tally.cancelled) AS cancelled,
                sum(tally.added - tally.done - tally.failed - tally.cancelled) AS deleted
            FROM pgqueue_tally AS tally WHERE tally.batch_id = given.id
        ) AS counted
        WHERE batch.id = given.id AND NOT batch.is_open AND batch.finished_at IS NULL
            AND (SELECT job.id FROM pgqueue_job_live AS job WHERE job.batch = given.id ORDER BY -job.id LIMIT 1) IS NULL
        RETURNING batch.id, batch.outcome, counted.failed, counted.deleted
    LOOP
        IF ended.deleted > 0 THEN
            PERFORM _pgqueue_count(ended.id, 0, 0, 0, ended.deleted::integer);
        END IF;
        RETURN QUERY SELECT ended.id, ended.outcome::text, ended.outcome = 'failed' AND (
            SELECT count(*) FROM pgqueue_job_kept AS job WHERE job.batch = ended.id AND job.status = 'failed'
        ) < ended.failed;
    END LOOP;
END $$;
