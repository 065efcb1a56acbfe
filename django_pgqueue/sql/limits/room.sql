-- How many more jobs may start in each of these queues, whose limits are given (NULL: any number may run); the queue *
-- is the whole installation. The jobs that run are counted, and the rate is read, under a lock of the queue, by a
-- statement that begins after the lock was taken, which needs READ COMMITTED. What starts is charged in the same
-- transaction (_pgqueue_charge). Nothing waits: a queue whose lock another claim has taken has no room for this
-- one.
CREATE FUNCTION _pgqueue_room(p_queues text[], p_limits integer[])
RETURNS TABLE (queue_name text, room integer) LANGUAGE plpgsql STRICT SET search_path FROM CURRENT AS $$
DECLARE
    locked text[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pgqueue: limits of queues need READ COMMITTED, not %',
            current_setting('transaction_isolation') USING ERRCODE = 'invalid_transaction_state';
    END IF;
    locked := ARRAY(
        SELECT given.name FROM unnest(p_queues) AS given (name)
        WHERE pg_try_advisory_xact_lock(_pgqueue_lock_key('room', given.name)));
    PERFORM _pgqueue_settle_rates(ARRAY(
        SELECT CASE WHEN queue = '*' THEN '*' ELSE 'queue:' || queue END FROM unnest(locked) AS queue));
    RETURN QUERY
        SELECT given.name, CASE WHEN given.name = ANY (locked) THEN least(
            CASE WHEN given.most IS NOT NULL THEN greatest(0, given.most - (
                SELECT count(*) FROM pgqueue_job_live AS job
                WHERE job.status = 'running' AND (given.name = '*' OR job.queue_name = given.name)
            ))::integer END,
            (SELECT _pgqueue_starts_left(rate.tat, clock_timestamp(), setting.rate, setting.per, setting.burst)
            FROM pgqueue_limit AS setting LEFT JOIN pgqueue_rate AS rate ON rate.key = setting.name
            WHERE setting.name = CASE WHEN given.name = '*' THEN '*' ELSE 'queue:' || given.name END)
        ) ELSE 0 END
        FROM unnest(p_queues, p_limits) AS given (name, most);
END $$;

-- End older jobs of the keys in p_replacing, whose limits let a newer job replace older ones (on_full = 'cancel_old').
-- Of the jobs that run, wait in line, or were picked by the claim, the newest stay, as many as the limit allows. The
-- others are cancelled, and running ones are asked to stop. The gate calls this (_pgqueue_gate), so it must not wait:
-- rows that others have locked are left for the next claim. Returns how many jobs it cancelled or asked to stop.
CREATE FUNCTION _pgqueue_replace(p_ids bigint[], p_keys text[], p_replacing text[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    older bigint[];
BEGIN
    older := ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job
        WHERE job.cancel_requested_at IS NULL AND job.id = ANY (ARRAY(
            SELECT old.id
            FROM unnest(p_replacing) AS given (key)
            JOIN pgqueue_limit AS setting ON setting.name = split_part(given.key, '/', 1)
            CROSS JOIN LATERAL (
                SELECT rival.id FROM (
                    SELECT live.id FROM pgqueue_job_live AS live
                    WHERE live.limit_key = given.key AND live.status = 'running'
                    UNION
                    SELECT live.id FROM pgqueue_job_live AS live
                    WHERE live.limit_key = given.key AND live.wait_position IS NOT NULL
                        AND live.status IN ('pending', 'retry', 'blocked')
                    UNION
                    SELECT pick.id FROM unnest(p_ids, p_keys) AS pick (id, key) WHERE pick.key = given.key
                ) AS rival
                ORDER BY rival.id DESC OFFSET setting.concurrency
            ) AS old
        ))
        FOR UPDATE SKIP LOCKED);
    RETURN CASE WHEN older = '{}' THEN 0
        ELSE cardinality(pgqueue_cancel(older, 'replaced by a newer job of its limit key')) END;
END $$;
