-- Cancel a batch: it is closed, it ends as cancelled, and so do its members that have not started. Those that run are asked
-- to stop. No more members may be added. Returns how many members were cancelled or asked to stop.
--
-- Race: another session adds members, and has not committed yet. The row of the batch is locked against them, too, so this waits,
-- and then sees their members. It holds nothing else yet, because such a transaction may go on to end a member. A member
-- that ends meanwhile leaves the end of the batch to this after a quarter of a second (lock_batches_v1.sql).
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
            HINT = 'It was never committed, or it is over and its retention has passed.';
    ELSIF known.finished_at IS NOT NULL THEN
        RETURN 0;
    END IF;
    UPDATE pgqueue_batch AS batch SET is_open = false, cancel_requested_at = coalesce(
        batch.cancel_requested_at, clock_timestamp()) WHERE batch.id = pgqueue_cancel_batch.id;
    cancelled := cardinality(pgqueue_cancel(ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job WHERE job.batch = pgqueue_cancel_batch.id ORDER BY job.id)));
    PERFORM pgqueue_settle_v1('{}', ARRAY[pgqueue_cancel_batch.id]);  -- it may have had no member that lives
    RETURN cancelled;
END $$;
