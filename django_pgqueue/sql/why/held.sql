-- Why no worker may take a waiting job, whoever they are (pgqueue_why): it has expired, waits for a time, for other
-- jobs, for the end of a pause, or for a limit. NULL: a worker may take it.
CREATE FUNCTION _pgqueue_why_held(p_job pgqueue_job, p_now timestamptz, OUT code text, OUT facts jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF p_job.expires_at <= p_now THEN
        code := 'expired';
        facts := jsonb_build_object('expired_at', p_job.expires_at);
    ELSIF p_job.status = 'blocked' AND starts_with(p_job.waiting_reason, 'waits for job') THEN
        -- What needs help comes first: a parent that has failed, then a batch that was not closed. If all parents have
        -- finished, maintenance still has to pass that to the job.
        SELECT CASE min(parent.rank)
                WHEN 1 THEN 'after_failed' WHEN 2 THEN 'after_open_batch' WHEN 3 THEN 'after' ELSE 'after_over' END,
            jsonb_build_object('count', count(*), 'parents', coalesce(to_jsonb((array_agg(jsonb_build_object(
                'id', parent.parent_id, 'is_batch', parent.is_batch, 'name', nullif(parent.name, ''),
                'state', parent.state) ORDER BY parent.rank, parent.parent_id))[1:5]), '[]'))
        INTO code, facts
        FROM (
            SELECT waits.*, CASE
                WHEN waits.state = 'failed' AND waits.if_failed = 'hold' THEN 1 WHEN waits.state = 'open' THEN 2
                WHEN waits.state IN ('done', 'failed', 'cancelled', 'gone') THEN 4 ELSE 3 END AS rank
            FROM pgqueue_parents(p_job.id) AS waits
        ) AS parent;
    ELSIF p_job.run_after > p_now AND p_job.status <> 'blocked'
        AND p_job.waiting_reason <> 'waits for its rate limit' THEN
        -- An attempt that failed has left an error that is younger than the claim of the attempt.
        SELECT CASE
                WHEN step.kind = 'event' THEN 'event'
                WHEN step.kind = 'sleep' THEN 'sleeping'
                WHEN p_job.waiting_reason ~ '^no task | is not a task [(]' THEN 'unknown_task'  -- tasks/paths.py
                WHEN p_job.waiting_reason <> '' THEN 'put_back'
                WHEN failed.now THEN 'retry'
                WHEN p_job.started_at IS NOT NULL THEN 'snoozed'
                ELSE 'scheduled' END,
            jsonb_build_object(
                'step', step.name, 'reason', nullif(p_job.waiting_reason, ''), 'attempts', p_job.attempts,
                'max_attempts', p_job.max_attempts + p_job.forgiven_attempts,
                'error', CASE WHEN failed.now THEN p_job.errors -> -1 END)
        INTO code, facts
        FROM (SELECT coalesce(
            (p_job.errors -> -1 ->> 'finished_at')::timestamptz >= p_job.last_attempted_at, false) AS now) AS failed
        LEFT JOIN pgqueue_step AS step ON step.job_id = p_job.id AND step.name = p_job.current_step
            AND step.finished_at IS NULL AND p_job.marks & 1 <> 0;
    ELSE
        SELECT 'paused', jsonb_build_object(
            'pause', pause.id, 'kind', pause.kind, 'name', nullif(pause.name, ''), 'author', nullif(pause.author, ''),
            'reason', nullif(pause.reason, ''), 'since', pause.paused_at, 'until', pause.until)
        INTO code, facts FROM pgqueue_pause AS pause
        WHERE (pause.until IS NULL OR pause.until > clock_timestamp()) AND _pgqueue_is_paused_by(pause, p_job)
        ORDER BY array_position('{all,queue,task}', pause.kind::text), pause.id LIMIT 1;
        IF NOT FOUND AND p_job.status = 'blocked' AND starts_with(p_job.waiting_reason, 'paused') THEN
            code := 'pause_over';  -- a worker or maintenance lets it go in a moment
            facts := '{}';
        ELSIF NOT FOUND THEN
            SELECT limited.code, limited.facts INTO code, facts FROM _pgqueue_why_limited(p_job, p_now) AS limited;
        END IF;
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

-- Which limit holds a job (pgqueue_why): that of its limit key, of its queue, or of the installation. A job that is
-- not in line yet meets the limits of queues first, as in the claim. Running jobs are counted up to the limit.
CREATE FUNCTION _pgqueue_why_limited(p_job pgqueue_job, p_now timestamptz, OUT code text, OUT facts jsonb)
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
        SELECT * INTO held FROM _pgqueue_why_holders(
            rule.limit_key, CASE WHEN rule.name <> '*' THEN p_job.queue_name END, NULL, rule.allowed);
        next_start := _pgqueue_next_start(
            (SELECT rate.tat FROM pgqueue_rate AS rate WHERE rate.key = coalesce(rule.limit_key, rule.name)), p_now,
            rule.rate, rule.per, rule.burst, 1);
        code := CASE WHEN held.running >= rule.allowed THEN 'limit' WHEN next_start > p_now THEN 'rate' END;
        IF code IS NOT NULL THEN
            facts := jsonb_build_object(
                'limit', rule.name, 'is_set', rule.is_set, 'key', rule.limit_key, 'allowed', rule.allowed,
                'running', held.running, 'holders', CASE WHEN code = 'limit' THEN held.longest END,
                'rate', rule.rate, 'per', extract(epoch FROM rule.per),
                'next_start', CASE WHEN next_start > p_now THEN next_start END,
                'place', CASE WHEN rule.limit_key IS NOT NULL THEN _pgqueue_place(
                    p_job.limit_key, p_job.queue_name, p_job.priority, p_job.wait_position) END);
            RETURN;
        END IF;
    END LOOP;
END $$;

-- How many jobs of a limit key and queue start before one (pgqueue_why, pgqueue_blocked_by), counted up to 1,001. One
-- that is not in line yet (p_position is NULL) comes after the jobs of its priority that are. Two conditions instead of
-- one with an OR: only plain bounds end a scan of the index, and the rest of a line may be long. Other plans would read
-- all of it or of the table, and a planner that takes the line for short prefers them until the table is vacuumed.
CREATE FUNCTION _pgqueue_place(p_key text, p_queue text, p_priority integer, p_position bigint) RETURNS integer
LANGUAGE sql STABLE SET search_path FROM CURRENT SET enable_seqscan TO off SET enable_bitmapscan TO off AS $$
    SELECT count(*)::integer FROM (
        (SELECT FROM pgqueue_job_live AS ahead
        WHERE ahead.limit_key = p_key AND ahead.queue_name = p_queue AND ahead.wait_position IS NOT NULL
            AND ahead.status IN ('pending', 'retry', 'blocked') AND ahead.priority > p_priority
        LIMIT 1001)
        UNION ALL
        (SELECT FROM pgqueue_job_live AS ahead
        WHERE ahead.limit_key = p_key AND ahead.queue_name = p_queue AND ahead.wait_position IS NOT NULL
            AND ahead.status IN ('pending', 'retry', 'blocked') AND ahead.priority = p_priority
            AND ahead.wait_position < coalesce(p_position, 9223372036854775807)
        LIMIT 1001)
        LIMIT 1001
    ) AS part
$$;

-- How many jobs run under a limit or on some workers, counted up to p_most (NULL: nothing is read), those five of them
-- that have run the longest, and since when the last one runs. p_queue: the queue of a limit without a key; NULL: all
-- queues.
CREATE FUNCTION _pgqueue_why_holders(
    p_key text, p_queue text, p_workers bigint[], p_most integer,
    OUT running integer, OUT longest jsonb, OUT since timestamptz
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    ids bigint[];
BEGIN
    IF p_most IS NULL THEN
        RETURN;
    ELSIF p_workers IS NOT NULL THEN
        ids := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND job.worker = ANY (p_workers) LIMIT p_most);
    ELSIF p_key IS NOT NULL THEN
        ids := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND job.limit_key = p_key LIMIT p_most);
    ELSE
        ids := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND (p_queue IS NULL OR job.queue_name = p_queue)
            ORDER BY job.worker LIMIT p_most);  -- the order is that of the index of running jobs
    END IF;
    SELECT cardinality(ids), coalesce(to_jsonb((array_agg(jsonb_build_object(
            'id', job.id, 'task_path', job.task_path, 'since', job.last_attempted_at)
            ORDER BY job.last_attempted_at, job.id))[1:5]), '[]'), max(job.last_attempted_at)
    INTO running, longest, since FROM pgqueue_job_live AS job WHERE job.id = ANY (ids);
END $$;
