-- Close a batch: it ends with its last member, and now if it has none that live. Members that run may still add others.
-- Returns whether it was open.
--
-- Race: members end at the same moment. If they have seen that the batch is open, they hold its row until their commit, so
-- this waits for them, and sees their end. Or they have left the end of the batch to a member that lives. Whoever ends
-- the last one waits for the row that this locks, and sees that the batch is closed.
CREATE FUNCTION pgqueue_close_batch(id bigint) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    was_open boolean;
BEGIN
    SELECT batch.is_open INTO was_open FROM pgqueue_batch AS batch WHERE batch.id = pgqueue_close_batch.id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: there is no batch %', pgqueue_close_batch.id USING ERRCODE = '23Q06',
            HINT = 'It was never committed, or it is over and its retention has passed.';
    END IF;
    IF was_open THEN
        UPDATE pgqueue_batch AS batch SET is_open = false WHERE batch.id = pgqueue_close_batch.id;
        PERFORM pgqueue_settle_v1('{}', ARRAY[pgqueue_close_batch.id]);
    END IF;
    RETURN was_open;
END $$;
