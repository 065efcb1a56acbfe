-- Let the first job of each line of these limit keys become claimable, if it is blocked. A key has one line in
-- each queue. This counts nothing and waits for no session: a job too many goes back at the gate (_pgqueue_gate), which
-- also fills the room that this leaves. Returns how many jobs became claimable.
--
-- The ids are noted in a setting of the transaction: the claim of the same round trip takes them first, so that a job
-- that waited does not stand behind jobs that came later (jobs/claim.py).
--
-- The first job of a line that waits for its rate is an ordinary job of the future, the alarm clock of that line
-- (_pgqueue_gate), so nothing is released behind it. If p_wakes, because the limit has changed, it is due at once, so
-- it is if its time is later than the rate explains, because the clock has stepped back.
CREATE FUNCTION _pgqueue_release(p_keys text[], p_wakes boolean DEFAULT false) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    released bigint[];
BEGIN
    -- A job that is not due, because a user has moved it, must not stand in the way of the others.
    WITH RECURSIVE lane AS (
        SELECT DISTINCT unnest(p_keys) AS key, '' AS queue_name, '' AS status, 0::bigint AS id, '' AS waiting_reason,
            NULL::timestamptz AS run_after
        UNION ALL
        SELECT lane.key, head.*
        FROM lane CROSS JOIN LATERAL (
            SELECT job.queue_name::text, job.status::text, job.id, job.waiting_reason::text, job.run_after
            FROM pgqueue_job_live AS job
            WHERE job.limit_key = lane.key AND job.wait_position IS NOT NULL
                AND job.status IN ('pending', 'retry', 'blocked') AND job.queue_name > lane.queue_name
                AND (job.status = 'blocked' OR job.run_after <= clock_timestamp()
                    OR job.waiting_reason = 'waits for its rate limit')
            ORDER BY job.queue_name, job.priority DESC, job.wait_position LIMIT 1
        ) AS head
    ), freed AS (
        UPDATE pgqueue_job_live AS job SET
            status = CASE WHEN job.attempts > 0 THEN 'retry' ELSE 'pending' END,
            run_after = CASE WHEN job.status = 'blocked' THEN greatest(job.run_after, clock_timestamp())
                ELSE clock_timestamp() END,
            waiting_reason = ''
        WHERE job.id = ANY (ARRAY(
            -- Race: a cancel may have locked the first job, and may be rolled back. Then the next one is released,
            -- because a job must be there to release the rest.
            SELECT free.id FROM lane CROSS JOIN LATERAL (
                SELECT job.id FROM pgqueue_job_live AS job
                WHERE job.limit_key = lane.key AND job.queue_name = lane.queue_name AND job.wait_position IS NOT NULL
                    AND job.status = 'blocked'
                ORDER BY job.priority DESC, job.wait_position LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
            ) AS free
            WHERE lane.status = 'blocked'
            UNION ALL
            SELECT alarm.id FROM lane CROSS JOIN LATERAL (
                SELECT job.id FROM pgqueue_job_live AS job
                WHERE job.id = lane.id AND job.waiting_reason = 'waits for its rate limit'
                    AND job.run_after > clock_timestamp()
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS alarm
            WHERE lane.waiting_reason = 'waits for its rate limit' AND lane.run_after > clock_timestamp()
                AND (p_wakes OR lane.run_after > clock_timestamp() + interval '1 second' + (
                    SELECT interval '1 second' * (extract(epoch FROM setting.per) / setting.rate)::float8
                    FROM pgqueue_limit AS setting WHERE setting.name = split_part(lane.key, '/', 1)))
        ))
        RETURNING job.id
    )
    SELECT array_agg(freed.id) INTO released FROM freed;
    PERFORM set_config('pgqueue.released', coalesce(array_to_string(released, ','), ''), true);
    RETURN coalesce(cardinality(released), 0);
END $$;

-- Release the lines of all limit keys of a limit, after it was changed.
CREATE FUNCTION _pgqueue_release_limit(p_name text) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT _pgqueue_release(
        ARRAY[p_name, p_name || '/'] || ARRAY(SELECT _pgqueue_lines(p_name || '/', NULL, p_name || '/')), true)
$$;

-- Return the limit keys that have a line and begin with p_prefix, after p_after, at most p_limit (NULL: all). This
-- takes one probe of the index for each key. The column is compared byte by byte, so that the keys of a limit stand
-- together.
CREATE FUNCTION _pgqueue_lines(p_after text, p_limit integer, p_prefix text DEFAULT '') RETURNS SETOF text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    WITH RECURSIVE line AS (
        SELECT p_after COLLATE "C" AS key, 0 AS nth
        UNION ALL
        SELECT following.limit_key, line.nth + 1 FROM line CROSS JOIN LATERAL (
            SELECT job.limit_key::text FROM pgqueue_job_live AS job
            WHERE job.wait_position IS NOT NULL AND job.status IN ('pending', 'retry', 'blocked')
                AND job.limit_key > line.key
            ORDER BY job.limit_key LIMIT 1
        ) AS following
        WHERE starts_with(following.limit_key, p_prefix) AND coalesce(line.nth < p_limit, true)
    )
    SELECT line.key FROM line WHERE line.nth > 0
$$;

-- A round of maintenance over at most p_limit limit keys that have a line, after the key p_after: release the lines
-- that have room, but whose first job is blocked, or waits for its rate longer than that explains. Returns the last key
-- that was looked at (NULL: there are no more), how many it looked at, and how many jobs were released.
--
-- This is for what the functions cannot see: jobs whose rows were deleted, a cancel of a whole line that was rolled
-- back after the finish that skipped its locked rows, and a finish in a transaction that is not READ COMMITTED, such as
-- that of an atomic task, whose snapshot may be older than the line.
CREATE FUNCTION _pgqueue_repair_lines(
    p_after text, p_limit integer, OUT lines integer, OUT reached text, OUT released integer
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    keys text[];
BEGIN
    lines := 0;
    released := 0;
    IF NOT _pgqueue_on_duty('lines') THEN
        RETURN;
    END IF;
    SELECT count(*), CASE WHEN count(*) = p_limit THEN max(line.key COLLATE "C") END,
        array_agg(line.key) FILTER (WHERE coalesce(
            busy.running < coalesce(setting.concurrency,
                CASE WHEN setting.rate IS NULL AND setting.is_overridden IS NOT TRUE THEN 1 END), true))
    INTO lines, reached, keys
    FROM _pgqueue_lines(p_after, p_limit) AS line (key)
    LEFT JOIN pgqueue_limit AS setting ON setting.name = split_part(line.key, '/', 1)
    CROSS JOIN LATERAL (
        SELECT count(*) AS running FROM pgqueue_job_live AS job
        WHERE job.limit_key = line.key AND job.status = 'running'
    ) AS busy;
    IF keys IS NOT NULL THEN
        released := _pgqueue_release(keys);
    END IF;
END $$;
