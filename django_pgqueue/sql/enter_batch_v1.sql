-- Add members to a batch: this must come before they are inserted. Raises an error if the batch has ended.
--
-- Race: the batch is ending at this moment. Whoever ends it has locked its row, so this waits, and then sees that it is
-- over. If this is first, its lock keeps others from ending the batch until the members are committed, and nobody waits
-- for that (lock_batches_v1.sql).
CREATE FUNCTION pgqueue_enter_batch_v1(p_batch bigint) RETURNS void
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
            HINT = 'It was never committed, or it is over and its retention has passed.';
    ELSE
        RAISE EXCEPTION 'pgqueue: batch % is over', p_batch USING ERRCODE = '23Q05',
            HINT = 'Keep it open until all of its members are added, add them from a member that runs, or open a new batch.',
            DETAIL = CASE WHEN known.finished_at IS NULL THEN 'It was cancelled.'
                ELSE format('It has ended as %s at %s.', known.outcome, known.finished_at) END;
    END IF;
END $$;
