-- Why no worker may take a waiting job, whoever they are (pgqueue_why): it has expired, waits for a time, for other
-- jobs, for the end of a pause, or for a limit. NULL: a worker may take it.
CREATE FUNCTION _pgqueue_why_held(p_job pgqueue_job_live, p_now timestamptz, OUT code text, OUT facts jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF p_job.expires_at <= p_now THEN
        code := 'expired';
        facts := jsonb_build_object('expired_at', p_job.expires_at);
    ELSIF p_job.status = 'blocked' AND starts_with(p_job.waiting_reason, 'waits for job') THEN
        SELECT after.code, after.facts INTO code, facts FROM _pgqueue_why_after(p_job.id) AS after;
    ELSIF p_job.run_after > p_now AND p_job.status <> 'blocked'
        AND p_job.waiting_reason <> 'waits for its rate limit' THEN
        SELECT later.code, later.facts INTO code, facts FROM _pgqueue_why_later(p_job) AS later;
    END IF;
    IF code IS NULL THEN
        SELECT paused.code, paused.facts INTO code, facts FROM _pgqueue_why_paused(p_job) AS paused;
    END IF;
    IF code IS NULL THEN
        SELECT limited.code, limited.facts INTO code, facts FROM _pgqueue_why_limited(p_job, p_now) AS limited;
    END IF;
    IF code IS NULL AND p_job.status = 'blocked' AND p_job.limit_key IS NULL THEN
        code := 'blocked';  -- by a statement that is not of this version
        facts := jsonb_build_object('reason', nullif(p_job.waiting_reason, ''));
    ELSIF code IS NULL AND p_job.run_after > p_now AND p_job.status <> 'blocked' THEN
        -- It is the alarm clock of its line (_pgqueue_gate).
        code := 'rate';
        facts := jsonb_build_object(
            'limit', split_part(p_job.limit_key, '/', 1), 'key', p_job.limit_key, 'next_start', p_job.run_after);
    END IF;
END $$;

-- Which pause holds a job (pgqueue_why): that of everything, that of its queue, then that of its task. A job that was
-- put aside for a pause that has ended is let go in a moment, by a worker or by maintenance.
CREATE FUNCTION _pgqueue_why_paused(p_job pgqueue_job_live, OUT code text, OUT facts jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    SELECT 'paused', jsonb_build_object(
        'pause', pause.id, 'kind', pause.kind, 'name', nullif(pause.name, ''), 'author', nullif(pause.author, ''),
        'reason', nullif(pause.reason, ''), 'since', pause.paused_at, 'until', pause.until)
    INTO code, facts FROM pgqueue_pause AS pause
    WHERE (pause.until IS NULL OR pause.until > clock_timestamp()) AND CASE pause.kind
        WHEN 'all' THEN true WHEN 'queue' THEN pause.name = p_job.queue_name ELSE pause.name = p_job.task_path END
    ORDER BY array_position('{all,queue,task}', pause.kind::text) LIMIT 1;
    IF NOT FOUND AND p_job.status = 'blocked' AND starts_with(p_job.waiting_reason, 'paused') THEN
        code := 'pause_over';
        facts := '{}';
    END IF;
END $$;

-- What a job waits for that was enqueued after others (pgqueue_why). What needs help comes first: a parent that
-- has failed, then a batch that was not closed. If all parents have finished, maintenance still has to tell the job so.
CREATE FUNCTION _pgqueue_why_after(p_id bigint, OUT code text, OUT facts jsonb)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE min(parent.rank)
            WHEN 1 THEN 'after_failed' WHEN 2 THEN 'after_open_batch' WHEN 3 THEN 'after' ELSE 'after_over' END,
        jsonb_build_object('count', count(*), 'parents', coalesce(jsonb_agg(jsonb_build_object(
            'id', parent.parent_id, 'is_batch', parent.is_batch, 'name', nullif(parent.name, ''), 'state', parent.state)
            ORDER BY parent.rank, parent.parent_id) FILTER (WHERE parent.nth <= 5), '[]'))
    FROM (
        SELECT ranked.*, row_number() OVER (ORDER BY ranked.rank, ranked.parent_id) AS nth
        FROM (
            SELECT waits.*, CASE waits.state
                WHEN 'failed' THEN CASE waits.if_failed WHEN 'hold' THEN 1 ELSE 4 END
                WHEN 'open' THEN 2 WHEN 'done' THEN 4 WHEN 'cancelled' THEN 4 WHEN 'gone' THEN 4 ELSE 3 END AS rank
            FROM pgqueue_parents(p_id) AS waits
        ) AS ranked
    ) AS parent
$$;

-- Why a job waits for a time (pgqueue_why): for a sleep or an event, for a worker that knows its task, for its next
-- attempt, because it was snoozed or put back, or because it was enqueued for later. An attempt that failed has left an
-- error that is younger than the claim of the attempt.
CREATE FUNCTION _pgqueue_why_later(p_job pgqueue_job_live, OUT code text, OUT facts jsonb)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE
            WHEN step.kind = 'event' THEN 'event'
            WHEN step.kind = 'sleep' THEN 'sleeping'
            WHEN _pgqueue_why_is_unknown(p_job.waiting_reason) THEN 'unknown_task'
            WHEN p_job.waiting_reason <> '' THEN 'put_back'
            WHEN failed.now THEN 'retry'
            WHEN p_job.started_at IS NOT NULL THEN 'snoozed'
            ELSE 'scheduled' END,
        jsonb_build_object(
            'step', step.name, 'reason', nullif(p_job.waiting_reason, ''), 'attempts', p_job.attempts,
            'max_attempts', p_job.max_attempts + p_job.forgiven_attempts,
            'error', CASE WHEN failed.now THEN _pgqueue_why_error(p_job.errors) END)
    FROM (SELECT coalesce(
        (p_job.errors -> -1 ->> 'finished_at')::timestamptz >= p_job.last_attempted_at, false) AS now) AS failed
    LEFT JOIN pgqueue_step AS step ON step.job_id = p_job.id AND step.name = p_job.current_step
        AND step.finished_at IS NULL AND p_job.marks & 1 <> 0
$$;

-- Which limit holds a job (pgqueue_why): that of its limit key, of its queue, or of the installation. A job that is
-- not in line yet meets the limits of queues first, as in the claim. Running jobs are counted up to the limit.
CREATE FUNCTION _pgqueue_why_limited(p_job pgqueue_job_live, p_now timestamptz, OUT code text, OUT facts jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    rule record;
    held record;
    next_start timestamptz;
BEGIN
    FOR rule IN
        SELECT own.name, own.limit_key,
            coalesce(setting.concurrency,
                CASE WHEN setting.rate IS NULL AND setting.is_overridden IS NOT TRUE THEN 1 END) AS allowed,
            setting.rate, setting.per, setting.burst, setting.name IS NOT NULL AS is_set,
            CASE WHEN p_job.status = 'blocked' THEN 0 ELSE 3 END AS nth
        FROM (SELECT split_part(p_job.limit_key, '/', 1) AS name, p_job.limit_key::text AS limit_key) AS own
        LEFT JOIN pgqueue_limit AS setting ON setting.name = own.name
        WHERE own.limit_key IS NOT NULL
        UNION ALL
        SELECT setting.name, NULL, setting.concurrency, setting.rate, setting.per, setting.burst, true,
            CASE WHEN setting.name = '*' THEN 1 ELSE 2 END
        FROM pgqueue_limit AS setting WHERE setting.name IN ('*', 'queue:' || p_job.queue_name)
        ORDER BY nth
    LOOP
        SELECT holders.running, holders.jobs INTO held FROM _pgqueue_why_holders(
            rule.limit_key, CASE WHEN rule.name <> '*' THEN p_job.queue_name END, rule.allowed) AS holders;
        next_start := _pgqueue_next_start(
            (SELECT rate.tat FROM pgqueue_rate AS rate WHERE rate.key = coalesce(rule.limit_key, rule.name)), p_now,
            rule.rate, rule.per, rule.burst, 1);
        code := CASE WHEN held.running >= rule.allowed THEN 'limit' WHEN next_start > p_now THEN 'rate' END;
        IF code IS NOT NULL THEN
            facts := jsonb_build_object(
                'limit', rule.name, 'is_set', rule.is_set, 'key', rule.limit_key, 'allowed', rule.allowed,
                'running', held.running,
                'holders', CASE WHEN code = 'limit' THEN held.jobs END,
                'rate', rule.rate, 'per', extract(epoch FROM rule.per),
                'next_start', CASE WHEN next_start > p_now THEN next_start END,
                'place', CASE WHEN rule.limit_key IS NOT NULL THEN _pgqueue_why_place(p_job, 1001) END);
            RETURN;
        END IF;
    END LOOP;
END $$;

-- How many jobs of its key and queue start before this one, counted up to p_most (pgqueue_why). A job that is not in
-- line yet comes after those of its priority that are. Two conditions instead of one with an OR: only plain bounds end
-- a scan of the index, and the rest of a line may be long.
CREATE FUNCTION _pgqueue_why_place(p_job pgqueue_job_live, p_most integer) RETURNS integer
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT count(*)::integer FROM (
        (SELECT FROM pgqueue_job_live AS ahead
        WHERE ahead.limit_key = p_job.limit_key AND ahead.queue_name = p_job.queue_name
            AND ahead.wait_position IS NOT NULL
            AND ahead.status IN ('pending', 'retry', 'blocked') AND ahead.priority > p_job.priority
        LIMIT p_most)
        UNION ALL
        (SELECT FROM pgqueue_job_live AS ahead
        WHERE ahead.limit_key = p_job.limit_key AND ahead.queue_name = p_job.queue_name
            AND ahead.wait_position IS NOT NULL
            AND ahead.status IN ('pending', 'retry', 'blocked') AND ahead.priority = p_job.priority
            AND ahead.wait_position < coalesce(p_job.wait_position, 9223372036854775807)
        LIMIT p_most)
        LIMIT p_most
    ) AS part
$$;

-- How many jobs run under a limit, counted up to it, and those five of them that have run the longest
-- (_pgqueue_why_limited). Without a limit, nothing is read. p_queue: the queue of a limit without a key; NULL: all
-- queues.
CREATE FUNCTION _pgqueue_why_holders(
    p_key text, p_queue text, p_allowed integer, OUT running integer, OUT jobs jsonb
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    holders bigint[];
BEGIN
    IF p_allowed IS NULL THEN
        RETURN;
    ELSIF p_key IS NOT NULL THEN
        holders := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND job.limit_key = p_key LIMIT p_allowed);
    ELSE
        holders := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND (p_queue IS NULL OR job.queue_name = p_queue)
            ORDER BY job.worker LIMIT p_allowed);  -- the order is that of the index of running jobs
    END IF;
    running := cardinality(holders);
    jobs := _pgqueue_why_longest(holders, 5);
END $$;

-- Those of the running jobs that have run the longest, for pgqueue_why.
CREATE FUNCTION _pgqueue_why_longest(p_ids bigint[], p_most integer) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('id', one.id, 'task_path', one.task_path,
        'since', one.last_attempted_at)
        ORDER BY one.last_attempted_at, one.id), '[]')
    FROM (
        SELECT job.id, job.task_path, job.last_attempted_at FROM pgqueue_job_live AS job
        WHERE job.id = ANY (p_ids) ORDER BY job.last_attempted_at, job.id LIMIT p_most
    ) AS one
$$;
