-- Decide which of the picked jobs with a limit key may start. A claim calls this with the jobs that it has
-- picked and locked. The others are put in the wait queue of their key: they are blocked, and out of the claim's index,
-- until _pgqueue_release lets them out. Returns the jobs that may start, how many jobs it moved (look again at
-- once), how many of the picked ones stay where they are (do not move the marks past them), and the claimable jobs that
-- were not picked but may start: the next claim takes them first, or the room of their keys would stay empty until all
-- that is due before them has started. And how many jobs it has cancelled, or asked to stop, as their limits say.
--
-- Exact: the running jobs of a key are counted under a lock of the key, by a statement that begins after the lock was
-- taken. In a VOLATILE function each statement has a new snapshot, but only under READ COMMITTED, so every other
-- isolation is refused. The lock lasts until the commit, after which the next one sees what has started here.
--
-- A key may also have a rate (_pgqueue_starts_left). What starts is charged here. If no more may start now, the first
-- job of the line stays claimable, but at the time of the next start: an ordinary job of the future is the alarm clock.
--
-- No deadlock, since nothing waits: locks of keys are only tried, and rows that others have locked are skipped. A key
-- has one line in each queue, of which one at a time is looked at. The locks of a server are limited in number, so at
-- most 256 keys are decided at a time.
CREATE FUNCTION _pgqueue_gate(
    p_ids bigint[], p_keys text[], p_queues text[], p_priorities smallint[], p_lines bigint[],
    OUT granted bigint[], OUT moved integer, OUT left_behind integer, OUT following bigint[], OUT ended integer
) LANGUAGE plpgsql STRICT SET search_path FROM CURRENT SET enable_bitmapscan TO off AS $$
DECLARE
    -- As in _pgqueue_lock_key, which would take longer than the rest if it were called for each key.
    prefix text := 'pgqueue/' || 'pgqueue_job_live'::regclass::oid || '/limit/';
    locked text[];        -- the keys whose lock is ours
    replacing text[];     -- the keys where a newer job replaces older ones
    rated text[];         -- the keys with a rate
    judged record;
    more integer;
    safe text[] := '{}';  -- the keys of which another session will surely release what is blocked here
    kept bigint[];
    armed text[];         -- the keys whose line has an alarm clock already
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pgqueue: limit keys need READ COMMITTED, not %',
            current_setting('transaction_isolation') USING ERRCODE = 'invalid_transaction_state';
    END IF;
    WITH first AS MATERIALIZED (
        SELECT pick.key FROM unnest(p_keys) WITH ORDINALITY AS pick (key, place)
        GROUP BY pick.key ORDER BY min(pick.place) LIMIT 256
    )
    SELECT coalesce(array_agg(first.key), '{}') INTO locked
    FROM first WHERE pg_try_advisory_xact_lock(hashtextextended(prefix || first.key, 0));

    SELECT coalesce(array_agg(each.key) FILTER (WHERE setting.on_full = 'cancel_old'), '{}'),
        coalesce(array_agg(each.key) FILTER (WHERE setting.rate IS NOT NULL), '{}')
    INTO replacing, rated
    FROM unnest(locked) AS each (key) JOIN pgqueue_limit AS setting ON setting.name = split_part(each.key, '/', 1);
    moved := 0;
    ended := 0;
    left_behind := cardinality(p_ids);
    IF replacing <> '{}' THEN
        ended := _pgqueue_replace(p_ids, p_keys, replacing);
        moved := ended;
        left_behind := (SELECT count(*) FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids));
    END IF;

    IF rated <> '{}' THEN
        PERFORM _pgqueue_settle_rates(rated);
    END IF;

    -- A job in line that is not due, because a user has moved it, counts as if it were not there.
    --
    -- The winners of a key are the first of its line, claimable and blocked ones alike, and of the picked jobs that
    -- have just come due (they have no place in the wait queue yet), as many as there is room. Picked winners may
    -- start.
    WITH lane AS MATERIALIZED (
        SELECT DISTINCT ON (pick.key) pick.key, pick.queue_name, array_agg(pick.id ORDER BY pick.place) AS ids,
            array_agg(pick.id ORDER BY pick.place) FILTER (WHERE pick.wait_position IS NULL) AS new_ids,
            array_agg(pick.priority ORDER BY pick.place) FILTER (WHERE pick.wait_position IS NULL) AS new_priorities
        FROM unnest(p_ids, p_keys, p_queues, p_priorities, p_lines)
            WITH ORDINALITY AS pick (id, key, queue_name, priority, wait_position, place)
        WHERE pick.key IN (SELECT unnest(locked))  -- hashed, unlike = ANY
            AND (replacing = '{}' OR EXISTS (SELECT FROM pgqueue_job_live AS job WHERE job.id = pick.id))
        GROUP BY pick.key, pick.queue_name ORDER BY pick.key, min(pick.place)
    ), verdict AS MATERIALIZED (
        SELECT lane.key, lane.queue_name, lane.ids, coalesce(setting.on_full = 'cancel_new', false) AS skips,
            free.slots, free.starts, ARRAY(
            SELECT waiting.id FROM (
                (SELECT job.id, job.priority, job.wait_position, 0 AS place FROM pgqueue_job_live AS job
                -- Without its collation it would have that of the keys, and be no condition of the index.
                WHERE job.limit_key = lane.key AND job.queue_name = lane.queue_name COLLATE "default"
                    AND job.wait_position IS NOT NULL
                    AND job.status IN ('pending', 'retry', 'blocked')
                    AND (job.status = 'blocked' OR job.run_after <= clock_timestamp())
                ORDER BY job.priority DESC, job.wait_position LIMIT free.room)
                UNION ALL
                SELECT newcomer.id, newcomer.priority, NULL, newcomer.place
                FROM unnest(lane.new_ids, lane.new_priorities) WITH ORDINALITY AS newcomer (id, priority, place)
            ) AS waiting
            ORDER BY waiting.priority DESC, waiting.wait_position, waiting.place LIMIT free.room
        ) AS winners
        FROM lane
        LEFT JOIN pgqueue_limit AS setting ON setting.name = split_part(lane.key, '/', 1)
        CROSS JOIN LATERAL (
            SELECT count(*) AS running FROM pgqueue_job_live AS job
            WHERE job.limit_key = lane.key AND job.status = 'running'
        ) AS busy
        -- What else limits the number of jobs that may start belongs here, as another argument of least().
        CROSS JOIN LATERAL (
            SELECT coalesce(setting.concurrency,
                CASE WHEN setting.rate IS NULL AND setting.is_overridden IS NOT TRUE THEN 1 END
            ) - busy.running AS slots,
                CASE WHEN lane.key = ANY (rated) THEN (
                    SELECT _pgqueue_starts_left(
                        (SELECT rate.tat FROM pgqueue_rate AS rate WHERE rate.key = lane.key), clock_timestamp(),
                        setting.rate, setting.per, setting.burst)
                ) END AS starts OFFSET 0
        ) AS allowed
        CROSS JOIN LATERAL (
            SELECT allowed.slots, allowed.starts,
                greatest(0, least(1000, allowed.slots, allowed.starts))::integer AS room OFFSET 0
        ) AS free
    ), slow AS MATERIALIZED (
        -- Where slots are left, but no starts. No finish changes that, only the time.
        SELECT verdict.key, verdict.queue_name FROM verdict
        WHERE verdict.starts <= cardinality(verdict.winners)
            AND coalesce(verdict.slots > cardinality(verdict.winners), true)
        ORDER BY verdict.key
    )
    SELECT coalesce(array_agg(pick.id) FILTER (WHERE pick.fate = 'granted'), '{}') AS granted,
        coalesce(array_agg(verdict.key) FILTER (WHERE pick.fate = 'granted'), '{}') AS granted_keys,
        coalesce(array_agg(pick.id) FILTER (WHERE pick.fate = 'refused'), '{}') AS refused,
        coalesce(array_agg(verdict.key) FILTER (WHERE pick.fate = 'refused'), '{}') AS refused_keys,
        coalesce(array_agg(verdict.queue_name) FILTER (WHERE pick.fate = 'refused'), '{}') AS refused_queues,
        array_agg(pick.id) FILTER (WHERE pick.fate = 'skipped') AS skipped,
        ARRAY(
            SELECT winner.id FROM verdict CROSS JOIN LATERAL unnest(verdict.winners) AS winner (id)
            WHERE winner.id <> ALL (verdict.ids)
        ) AS following,
        ARRAY(SELECT slow.key FROM slow) AS slow_keys,
        ARRAY(SELECT slow.queue_name FROM slow) AS slow_queues
    INTO judged
    FROM verdict CROSS JOIN LATERAL (
        SELECT one.id, CASE WHEN one.id = ANY (verdict.winners) THEN 'granted'
            WHEN verdict.skips THEN 'skipped' ELSE 'refused' END AS fate
        FROM unnest(verdict.ids) WITH ORDINALITY AS one (id, place) ORDER BY one.place
    ) AS pick;
    granted := judged.granted;
    following := judged.following;
    -- What starts now is charged now: before the commit, which releases the locks.
    IF rated <> '{}' AND granted <> '{}' THEN
        PERFORM _pgqueue_charge(judged.granted_keys);
    END IF;

    -- Only picked jobs start, because the claim cannot update a row that its snapshot does not show. Winners that are
    -- blocked become claimable, and the next claim takes them first, so it takes the jobs that became claimable
    -- elsewhere, in case no other session does.
    IF following <> '{}' THEN
        WITH freed AS (
            UPDATE pgqueue_job_live AS job SET
                status = CASE WHEN job.attempts > 0 THEN 'retry' ELSE 'pending' END,
                run_after = greatest(job.run_after, clock_timestamp()), waiting_reason = ''
            WHERE job.id = ANY (ARRAY(
                SELECT free.id FROM pgqueue_job_live AS free
                WHERE free.id = ANY (following) AND free.status = 'blocked'
                FOR NO KEY UPDATE SKIP LOCKED
            ))
            RETURNING job.limit_key
        )
        SELECT coalesce(array_agg(freed.limit_key), '{}') INTO safe FROM freed;
        moved := moved + cardinality(safe);
    END IF;

    IF judged.skipped IS NOT NULL THEN
        more := cardinality(pgqueue_cancel(
            judged.skipped, 'skipped: as many jobs of its limit key were running as its limit allows'));
        ended := ended + more;
        moved := moved + more;
        left_behind := left_behind - more;
    END IF;

    -- A witness is needed for each key, or what is blocked here would stay in line forever: a job that starts or was
    -- released in this call;
    safe := safe || judged.granted_keys;
    -- an alarm clock, which the line gets below;
    safe := safe || judged.slow_keys;
    -- or a running job that cannot end before this commit, because its finish waits for this lock, and sees the line
    -- then. Race: one that is ending now is locked, and proves nothing;
    safe := safe || ARRAY(
        SELECT lonely.key FROM (SELECT DISTINCT unnest(judged.refused_keys) AS key) AS lonely
        CROSS JOIN LATERAL (
            SELECT FROM pgqueue_job_live AS job
            WHERE job.limit_key = lonely.key AND job.status = 'running'
            LIMIT 1 FOR KEY SHARE SKIP LOCKED
        ) AS witness
        WHERE lonely.key <> ALL (safe));
    -- or the first of the line, if it is claimable. Race: another claim may have picked it, and fails to lock the key.
    -- Its lock lets this one pass, that of a cancel does not. Without this witness, two claims of which one has the
    -- first job and the other one the key could go on refusing each other.
    safe := safe || ARRAY(
        SELECT lonely.key FROM (
            SELECT DISTINCT * FROM unnest(judged.refused_keys, judged.refused_queues) AS given (key, queue_name)
        ) AS lonely
        CROSS JOIN LATERAL (
            SELECT FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.id <> ALL (p_ids) AND job.id = (
                SELECT head.id FROM pgqueue_job_live AS head
                WHERE head.limit_key = lonely.key AND head.queue_name = lonely.queue_name COLLATE "default"
                    AND head.wait_position IS NOT NULL
                    AND head.status IN ('pending', 'retry', 'blocked')
                    AND (head.status = 'blocked' OR head.run_after <= clock_timestamp())
                ORDER BY head.priority DESC, head.wait_position LIMIT 1
            )
            FOR KEY SHARE SKIP LOCKED
        ) AS witness
        WHERE lonely.key <> ALL (safe));
    -- Without a witness the first one stays claimable.
    kept := ARRAY(
        SELECT DISTINCT ON (given.key) given.id
        FROM unnest(judged.refused, judged.refused_keys) WITH ORDINALITY AS given (id, key, place)
        WHERE given.key <> ALL (safe) ORDER BY given.key, given.place);
    UPDATE pgqueue_job_live AS job SET
        status = 'blocked', wait_position = coalesce(job.wait_position, nextval('pgqueue_job_id_seq')),
        waiting_reason = CASE WHEN job.limit_key = ANY (judged.slow_keys) THEN 'waits for its rate limit'
            ELSE 'waits for its limit key' END
    WHERE job.id = ANY (judged.refused) AND job.id <> ALL (kept);
    GET DIAGNOSTICS more = ROW_COUNT;
    moved := moved + more;
    left_behind := left_behind - more - cardinality(granted);

    -- The first of a line that waits for its rate becomes an ordinary job of the future: the alarm clock of the line.
    -- It may be there already. Race: it may be in the hands of a cancel, which has seen an older line. Its lock does
    -- not let a share pass, and then the next one becomes the alarm clock.
    IF judged.slow_keys <> '{}' THEN
        armed := ARRAY(
            SELECT slow.key FROM unnest(judged.slow_keys, judged.slow_queues) AS slow (key, queue_name)
            CROSS JOIN LATERAL (
                SELECT FROM pgqueue_job_live AS job
                WHERE job.status IN ('pending', 'retry') AND job.id = (
                    SELECT head.id FROM pgqueue_job_live AS head
                    WHERE head.limit_key = slow.key AND head.queue_name = slow.queue_name COLLATE "default"
                        AND head.wait_position IS NOT NULL
                        AND head.status IN ('pending', 'retry', 'blocked') AND head.id <> ALL (granted)
                        AND (head.status = 'blocked' OR head.run_after <= clock_timestamp()
                            OR head.waiting_reason = 'waits for its rate limit')
                    ORDER BY head.priority DESC, head.wait_position LIMIT 1
                )
                FOR KEY SHARE SKIP LOCKED
            ) AS witness);
        -- Materialized: a nested loop that read this again for each job would skip the jobs that it has just updated,
        -- and make the whole line alarm clocks.
        WITH due AS MATERIALIZED (
            SELECT free.id, _pgqueue_next_start(
                (SELECT rate.tat FROM pgqueue_rate AS rate WHERE rate.key = slow.key), clock_timestamp(),
                setting.rate, setting.per, setting.burst, 1) AS at
            FROM unnest(judged.slow_keys, judged.slow_queues) AS slow (key, queue_name)
            JOIN pgqueue_limit AS setting ON setting.name = split_part(slow.key, '/', 1)
            CROSS JOIN LATERAL (
                SELECT first.id FROM pgqueue_job_live AS first
                WHERE first.limit_key = slow.key AND first.queue_name = slow.queue_name COLLATE "default"
                    AND first.wait_position IS NOT NULL
                    AND first.status = 'blocked'
                ORDER BY first.priority DESC, first.wait_position LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
            ) AS free
            WHERE slow.key <> ALL (armed)
        )
        UPDATE pgqueue_job_live AS job SET
            status = CASE WHEN job.attempts > 0 THEN 'retry' ELSE 'pending' END,
            run_after = greatest(job.run_after, clock_timestamp(), due.at), waiting_reason = 'waits for its rate limit'
        FROM due WHERE job.id = due.id;
    END IF;
END $$;
