-- How many more jobs may start in each of these queues, whose limits are given; the queue * is the whole
-- installation. The jobs that run are counted under a lock of the queue, by a statement that begins after the lock was
-- taken, which needs READ COMMITTED. Nobody waits: a queue whose lock another claim has taken has no room for this one.
CREATE FUNCTION pgqueue_room_v1(p_queues text[], p_limits integer[])
RETURNS TABLE (queue_name text, room integer) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    locked boolean[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pgqueue: limits of queues need READ COMMITTED, not %',
            current_setting('transaction_isolation') USING ERRCODE = 'invalid_transaction_state';
    END IF;
    locked := ARRAY(
        SELECT pg_try_advisory_xact_lock(pgqueue_lock_key_v1('room', given.name))
        FROM unnest(p_queues) WITH ORDINALITY AS given (name, place) ORDER BY given.place);
    RETURN QUERY
        SELECT given.name, CASE WHEN given.is_locked THEN greatest(0, given.most - (
            SELECT count(*) FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND (given.name = '*' OR job.queue_name = given.name)
        ))::integer ELSE 0 END
        FROM unnest(p_queues, p_limits, locked) AS given (name, most, is_locked);
END $$;
