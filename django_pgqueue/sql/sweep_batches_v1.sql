-- Delete at most p_limit batches that have been over for longer than any of their members is kept, and return how many.
-- What still held until such a batch succeeds can never run, and is cancelled.
--
-- Race: a member is retried at this moment. It locks the row of its batch (reopen_v1.sql), so this skips it.
CREATE FUNCTION pgqueue_sweep_batches_v1(p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    before timestamptz;
    gone bigint[];
    orphaned pgqueue_ended_v1[];
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
        SELECT ROW(over.id, 'dead', 2, NULL)::pgqueue_ended_v1 FROM unnest(gone) AS over (id)
        WHERE EXISTS (SELECT FROM pgqueue_edge AS edge WHERE edge.parent_id = over.id));
    IF orphaned <> '{}' THEN
        PERFORM pgqueue_settle_v1(orphaned);
    END IF;
    RETURN cardinality(gone);
END $$;
