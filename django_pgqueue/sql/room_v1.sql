-- How many more jobs may start in each of these queues, whose limits are given (NULL: any number may run); the queue *
-- is the whole installation. The jobs that run are counted, and the rate is read, under a lock of the queue, by a
-- statement that begins after the lock was taken, which needs READ COMMITTED. What starts is charged in the same
-- transaction (charge_queues_v1.sql). Nobody waits: a queue whose lock another claim has taken has no room for this one.
CREATE FUNCTION pgqueue_room_v1(p_queues text[], p_limits integer[])
RETURNS TABLE (queue_name text, room integer) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    locked boolean[];
    rated text[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pgqueue: limits of queues need READ COMMITTED, not %',
            current_setting('transaction_isolation') USING ERRCODE = 'invalid_transaction_state';
    END IF;
    locked := ARRAY(
        SELECT pg_try_advisory_xact_lock(pgqueue_lock_key_v1('room', given.name))
        FROM unnest(p_queues) WITH ORDINALITY AS given (name, place) ORDER BY given.place);
    rated := ARRAY(
        SELECT setting.name FROM unnest(p_queues, locked) AS given (name, is_locked)
        JOIN pgqueue_limit AS setting
            ON setting.name = CASE WHEN given.name = '*' THEN '*' ELSE 'queue:' || given.name END
        WHERE given.is_locked AND setting.rate IS NOT NULL);
    IF rated <> '{}' THEN
        PERFORM pgqueue_settle_rates_v1(rated);
    END IF;
    RETURN QUERY
        SELECT given.name, CASE WHEN NOT given.is_locked THEN 0 ELSE least(
            CASE WHEN given.most IS NOT NULL THEN greatest(0, given.most - (
                SELECT count(*) FROM pgqueue_job_live AS job
                WHERE job.status = 'running' AND (given.name = '*' OR job.queue_name = given.name)
            ))::integer END,
            CASE WHEN rated <> '{}' THEN (
                SELECT pgqueue_starts_left_v1(
                    rate.tat, clock_timestamp(), setting.rate, setting.per, setting.burst)
                FROM pgqueue_limit AS setting LEFT JOIN pgqueue_rate AS rate ON rate.key = setting.name
                WHERE setting.name = ANY (rated)
                    AND setting.name = CASE WHEN given.name = '*' THEN '*' ELSE 'queue:' || given.name END
            ) END
        ) END
        FROM unnest(p_queues, p_limits, locked) AS given (name, most, is_locked);
END $$;
