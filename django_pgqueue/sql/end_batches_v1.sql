-- End those of the batches that have no live member and are not open, and return them, with their outcomes. is_final: no
-- retry can change the outcome any more, because a member that failed was not kept.
--
-- Race: the last two members end at once, and neither sees the end of the other. So who leaves the end of the batch to
-- others locks, until its commit, a member that lives: the youngest, because it probably ends last. Who ends that
-- member waits for the lock, and its next statement sees everything. If all members that are left are being ended by
-- others at this moment, all of these queue for the row of the batch, and the last one sees no member. This needs a
-- new snapshot for each statement. Under REPEATABLE READ it is a serialization error, as in pgqueue_unblock_v1.
--
-- Members that nobody has counted as over, although none lives, count as cancelled: their rows were deleted by hand. So
-- such a batch is not a success. Retention cannot look like this: it only removes members that were counted at their ends.
--
-- Race: a member is added, ends or is retried at this moment. Its row and its count are committed together, and one
-- statement reads both, under the lock of the batch.
--
-- The first are batches of which members have ended. The others are looked at by the session that has locked their rows, or
-- who comes again (close_batch.sql, repair_batches_v1.sql): who ends the last member then queues for the row, and no
-- member has to be locked.
CREATE FUNCTION pgqueue_end_batches_v1(p_batches bigint[], p_others bigint[]) RETURNS TABLE (id bigint, outcome text, is_final boolean)
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
    ripe := pgqueue_lock_batches_v1(ripe);
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
            PERFORM pgqueue_count_v1(ended.id, 0, 0, 0, ended.deleted::integer);
        END IF;
        RETURN QUERY SELECT ended.id, ended.outcome::text,
            ended.outcome = 'failed' AND pgqueue_is_final_v1(ended.id, ended.failed);
    END LOOP;
END $$;
