-- Members of batches are retried: they no longer count as over, and neither do their batches. What has been started by the
-- end of such a batch is not started again, but what holds until the batch succeeds still waits for that.
--
-- Race: the batch is ending at this moment, without a look at a member that is not committed yet. Whoever ends it has
-- locked its row, so this waits, and then sees that it is over. If this is first, its lock keeps others from ending the
-- batch, as for members that are added (enter_batch_v1.sql).
CREATE FUNCTION pgqueue_reopen_v1(p_members pgqueue_ended_v1[]) RETURNS void
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
    PERFORM pgqueue_count_v1(
        counted.batch, 0, -counted.done::integer, -counted.failed::integer, -counted.cancelled::integer)
    FROM (
        SELECT member.batch, count(*) FILTER (WHERE member.outcome = 'done') AS done,
            count(*) FILTER (WHERE member.outcome = 'failed') AS failed,
            count(*) FILTER (WHERE member.outcome = 'cancelled') AS cancelled
        FROM unnest(p_members) AS member GROUP BY member.batch ORDER BY member.batch
    ) AS counted;
END $$;
