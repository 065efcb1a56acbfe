-- Count members of a batch that were added, have ended, or (negative numbers) are retried. The numbers never decide if
-- the batch has finished, only how it ended: two sessions that both see the last number would end it twice, or never.
--
-- Race: another session counts at the same moment, and holds its slot until its commit. This takes another one, so nobody
-- waits. Under another isolation than READ COMMITTED, a slot may have changed since the snapshot, which would be a
-- serialization error, so a new one is added.
CREATE FUNCTION pgqueue_count_v1(
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
    SELECT batch.id, pgqueue_random_v1(), p_added, p_done, p_failed, p_cancelled
    FROM pgqueue_batch AS batch WHERE batch.id = p_batch;  -- its retention may be over, but not that of a member
END $$;
