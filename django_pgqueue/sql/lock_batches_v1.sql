-- Lock those of the batches that may end now, and return them. Two that end the last members of a batch queue here, and
-- behind a transaction that enqueues something after the batch: but not for longer than a quarter of a second, as in
-- pgqueue_lock_children_v1. Maintenance looks at those that were left (repair_batches_v1.sql).
--
-- Race: another session adds members. That is a lock, too, but a weak one (enter_batch_v1.sql), and this does not wait for it: the
-- members that are added will end the batch. If they are rolled back, maintenance does.
CREATE FUNCTION pgqueue_lock_batches_v1(p_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms' AS $$
DECLARE
    mine bigint[];
BEGIN
    BEGIN
        mine := ARRAY(
            SELECT batch.id FROM pgqueue_batch AS batch WHERE batch.id = ANY (p_ids)
            ORDER BY batch.id FOR NO KEY UPDATE);
    EXCEPTION WHEN lock_not_available THEN
        mine := p_ids;
    END;
    RETURN ARRAY(
        SELECT batch.id FROM pgqueue_batch AS batch WHERE batch.id = ANY (mine)
        ORDER BY batch.id FOR UPDATE SKIP LOCKED);
END $$;
