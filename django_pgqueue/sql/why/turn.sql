-- Why a job that a worker may take, and for which there is a slot, has not started (pgqueue_why): the workers do not
-- know its task, another session has locked its row, or others come first. Otherwise it should start within a moment,
-- unless the transaction that asks has not committed what it wrote: no worker can see that.
--
-- The transaction that has locked a row is in its xmax. If several have, that is the number of a group of them, which
-- no row of pg_locks has, and the lock is not found.
CREATE FUNCTION _pgqueue_why_turn(
    p_job pgqueue_job_live, p_now timestamptz, p_queues jsonb[], p_excluded jsonb[], OUT code text, OUT facts jsonb
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    found record;
    ahead jsonb;
BEGIN
    IF _pgqueue_why_is_unknown(p_job.waiting_reason) THEN
        code := 'unknown_task';
        facts := jsonb_build_object('reason', p_job.waiting_reason);
        RETURN;
    END IF;
    SELECT held.pid, session.xact_start, nullif(session.application_name, '') AS application,
        locked.xmin AS made_by INTO found
    FROM pgqueue_job_live AS locked
    LEFT JOIN pg_locks AS held ON held.locktype = 'transactionid' AND held.transactionid = locked.xmax
        AND held.granted AND held.pid <> pg_backend_pid()
    LEFT JOIN pg_stat_get_activity(coalesce(held.pid, 0)) AS session ON true
    WHERE locked.id = p_job.id;
    IF found.pid IS NOT NULL THEN
        code := 'locked';
        facts := jsonb_build_object(
            'pid', found.pid, 'application', found.application, 'since', found.xact_start);
        RETURN;
    END IF;
    ahead := _pgqueue_why_ahead(p_job, p_now, p_queues, p_excluded);
    IF ahead ? 'first' THEN
        code := 'wait_queue';
    ELSIF (ahead ->> 'ahead')::integer > 0 OR (ahead ->> 'groups')::integer > 0 THEN
        code := 'behind';
    ELSIF EXISTS (
        SELECT FROM pg_locks AS own WHERE own.locktype = 'transactionid' AND own.transactionid = found.made_by
            AND own.pid = pg_backend_pid()) THEN
        code := 'uncommitted';
    ELSE
        code := 'ready';
    END IF;
    facts := ahead;
END $$;

-- Which jobs start before a waiting one (pgqueue_why), as the claim reads them: the due jobs of higher priorities in
-- the queues of its worker, then those of its queue and priority that were due earlier. Of several workers, the one
-- with the fewest of them counts. A job of a group waits for those of its group, while groups take turns. One that is
-- blocked by its limit key is in the wait queue of the key: what stands before it is its place, and the first one
-- starts next.
--
-- Counts end at 1,001, which means more than 1,000.
CREATE FUNCTION _pgqueue_why_ahead(
    p_job pgqueue_job_live, p_now timestamptz, p_queues jsonb[], p_excluded jsonb[]
) RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    most constant integer := 1001;
    paused text[];
    served record;
    higher integer := most;
    same integer;
    groups integer;
BEGIN
    IF p_job.status = 'blocked' THEN
        RETURN jsonb_build_object('key', p_job.limit_key, 'ahead', _pgqueue_why_place(p_job, most), 'first', (
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.limit_key = p_job.limit_key AND job.queue_name = p_job.queue_name
                AND job.wait_position IS NOT NULL
                AND job.status IN ('pending', 'retry', 'blocked')
            ORDER BY job.priority DESC, job.wait_position LIMIT 1));
    END IF;
    paused := ARRAY(
        SELECT pause.name FROM pgqueue_pause AS pause
        WHERE pause.kind = 'queue' AND (pause.until IS NULL OR pause.until > p_now));
    FOR served IN
        SELECT one.queues, one.excluded FROM unnest(p_queues, p_excluded) AS one (queues, excluded)
        ORDER BY one.queues = '[]'  -- those that serve few queues first: they are soon counted
    LOOP
        EXIT WHEN higher = 0;
        higher := _pgqueue_why_higher(p_job.priority, p_now, served.queues, served.excluded, paused, higher);
    END LOOP;
    IF p_job.group_key IS NULL THEN
        same := _pgqueue_why_earlier(p_job, most - higher);
    ELSE
        SELECT count(*) INTO same FROM (
            SELECT FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.group_key = p_job.group_key
                AND job.queue_name = p_job.queue_name AND job.priority = p_job.priority
                AND (job.run_after, job.id) < (p_job.run_after, p_job.id)
            LIMIT most - higher
        ) AS part;
        groups := (
            SELECT count(*) FROM _pgqueue_groups_after(p_job.queue_name, p_job.priority, '', 101) AS other
            WHERE other.group_key <> p_job.group_key AND other.run_after <= p_now);
    END IF;
    RETURN jsonb_build_object(
        'ahead', higher + same, 'higher', higher, 'priority', p_job.priority, 'group', p_job.group_key, 'groups',
        groups);
END $$;

-- How many due jobs of a higher priority a worker would take first, counted up to p_most (_pgqueue_why_ahead). p_queues
-- are the queues that it serves; an empty array: all but p_excluded. Each priority of a queue is read from its first
-- job on, so neither jobs of the future nor the entries of jobs that were claimed before are passed.
CREATE FUNCTION _pgqueue_why_higher(
    p_priority integer, p_now timestamptz, p_queues jsonb, p_excluded jsonb, p_paused text[], p_most integer
) RETURNS integer LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    name text;
    first record;
    part integer;
    counted integer := 0;
BEGIN
    FOR name IN
        SELECT served.name FROM jsonb_array_elements_text(p_queues) AS served (name)
        UNION ALL
        SELECT served.name FROM _pgqueue_queues_between(
            '', NULL, ARRAY(SELECT jsonb_array_elements_text(p_excluded))) AS served (name)
        WHERE p_queues = '[]'
    LOOP
        CONTINUE WHEN name = ANY (p_paused);
        FOR first IN
            SELECT probe.priority, probe.run_after, probe.id, kind.is_grouped
            FROM (VALUES (false), (true)) AS kind (is_grouped),
                _pgqueue_first_due_between(name, 101, p_priority, kind.is_grouped) AS probe
            WHERE probe.run_after <= p_now
        LOOP
            SELECT count(*) INTO part FROM (
                SELECT FROM pgqueue_job_live AS job
                WHERE job.status IN ('pending', 'retry') AND job.queue_name = name
                    AND job.is_grouped = first.is_grouped AND job.priority = first.priority
                    AND (job.run_after, job.id) >= (first.run_after, first.id) AND job.run_after <= p_now
                LIMIT p_most - counted
            ) AS due;
            counted := counted + part;
            IF counted >= p_most THEN
                RETURN counted;
            END IF;
        END LOOP;
    END LOOP;
    RETURN counted;
END $$;

-- How many jobs of the same queue and priority, without a group, were due before this one, counted up to p_most
-- (_pgqueue_why_ahead).
CREATE FUNCTION _pgqueue_why_earlier(p_job pgqueue_job_live, p_most integer) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    first record;
    counted integer;
BEGIN
    SELECT probe.run_after, probe.id INTO first FROM _pgqueue_first_due_between(
        p_job.queue_name, p_job.priority + 1, p_job.priority - 1, false) AS probe;
    SELECT count(*) INTO counted FROM (
        SELECT FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') AND job.queue_name = p_job.queue_name
            AND NOT job.is_grouped AND job.priority = p_job.priority
            AND (job.run_after, job.id) >= (first.run_after, first.id)
            AND (job.run_after, job.id) < (p_job.run_after, p_job.id)
        LIMIT p_most
    ) AS part;
    RETURN counted;
END $$;
