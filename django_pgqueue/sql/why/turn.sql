-- Whether workers can take jobs of a queue (pgqueue_why): no_worker if none that is alive serves it, and busy if all
-- slots of the workers that do are taken. Otherwise the code is NULL. Workers that are silent or ending start nothing;
-- one in another language sends heartbeats at its own pace, so it is silent after half of the lease. Jobs that a worker
-- has lost still take their slots. queues and excluded are what the workers serve, each combination once, as JSON
-- arrays.
CREATE FUNCTION _pgqueue_why_workers(
    p_queue text, p_now timestamptz, p_heartbeat double precision, p_lease double precision,
    OUT code text, OUT facts jsonb, OUT queues jsonb[], OUT excluded jsonb[]
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    crew record;
BEGIN
    SELECT array_agg(worker.id) FILTER (WHERE worker.is_able) AS ids,
        sum(worker.slots) FILTER (WHERE worker.is_able) AS slots,
        sum(worker.running) FILTER (WHERE worker.is_able) AS running,
        sum(worker.lost) FILTER (WHERE worker.is_able) AS lost,
        count(*) FILTER (WHERE worker.serves AND worker.is_alive AND NOT worker.is_able) AS ending,
        count(*) FILTER (WHERE worker.serves AND NOT worker.is_alive) AS silent,
        count(*) AS known
    INTO crew
    FROM (
        SELECT one.*, one.serves AND one.is_alive AND one.state = 'running' AND one.drain = '' AS is_able
        FROM (
            SELECT member.id, member.lost, member.slots, member.state, member.drain, (
                SELECT count(*) FROM (
                    SELECT FROM pgqueue_job_live AS job WHERE job.status = 'running' AND job.worker = member.id
                    LIMIT member.slots
                ) AS part) + member.lost AS running,
                member.heartbeat_at >= p_now - interval '1 second' * CASE
                    WHEN member.supervisor IS NULL THEN p_lease / 2
                    ELSE _pgqueue_allowed_silence(member.started_jobs, p_heartbeat, p_lease) END AS is_alive,
                CASE WHEN member.queues <> '{}' THEN p_queue = ANY (member.queues)
                    ELSE p_queue <> ALL (member.exclude_queues) END AS serves
            FROM pgqueue_worker AS member
        ) AS one
    ) AS worker;
    IF crew.ids IS NULL THEN
        code := 'no_worker';
        facts := jsonb_build_object('known', crew.known, 'ending', crew.ending, 'silent', crew.silent, 'served', (
            SELECT coalesce(jsonb_agg(part.served ORDER BY part.served), '[]') FROM (
                SELECT DISTINCT CASE WHEN member.queues <> '{}' THEN array_to_string(member.queues, ', ')
                    WHEN member.exclude_queues <> '{}' THEN 'all but ' || array_to_string(member.exclude_queues, ', ')
                    ELSE 'all' END AS served
                FROM pgqueue_worker AS member ORDER BY served LIMIT 10
            ) AS part));
        RETURN;
    END IF;
    SELECT array_agg(part.queues), array_agg(part.excluded) INTO queues, excluded FROM (
        SELECT DISTINCT to_jsonb(member.queues) AS queues, to_jsonb(member.exclude_queues) AS excluded
        FROM pgqueue_worker AS member WHERE member.id = ANY (crew.ids) LIMIT 10
    ) AS part;
    IF crew.running >= crew.slots THEN
        code := 'busy';
        facts := (
            SELECT jsonb_build_object(
                'workers', cardinality(crew.ids), 'slots', crew.slots, 'lost', nullif(crew.lost, 0),
                'longest', held.longest, 'since', held.since)
            FROM _pgqueue_why_holders(NULL, NULL, crew.ids, 10000) AS held);
    END IF;
END $$;

-- Which jobs start before one that a worker may take (pgqueue_why), as the claim reads them: the due jobs of higher
-- priorities in the queues of its worker, then jobs of its queue and priority that were due earlier. Of several
-- workers, the one with the fewest of them counts. A job of a group waits for the others of its group, while groups
-- take turns. One that is blocked by its limit key is in the wait queue of the key: what stands before it is its place,
-- and the first one starts next. If none comes before it, it should start within a moment, unless the transaction that
-- asks has not committed what it wrote: no worker can see that.
--
-- Counts end at 1,001, which means more than 1,000. Each priority of a queue is read from its first job on, so neither
-- jobs of the future nor the entries of jobs that were claimed before are passed. p_queues: the queues that each worker
-- serves; an empty array: all but p_excluded.
CREATE FUNCTION _pgqueue_why_ahead(
    p_job pgqueue_job, p_now timestamptz, p_queues jsonb[], p_excluded jsonb[], OUT code text, OUT facts jsonb
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    most constant integer := 1001;
    paused text[];
    served record;
    higher integer := most;
    same integer;
    groups integer;
BEGIN
    IF p_job.status = 'blocked' THEN
        code := 'wait_queue';
        facts := jsonb_build_object(
            'key', p_job.limit_key,
            'ahead', _pgqueue_place(p_job.limit_key, p_job.queue_name, p_job.priority, p_job.wait_position),
            'first', (
                SELECT job.id FROM pgqueue_job_live AS job
                WHERE job.limit_key = p_job.limit_key AND job.queue_name = p_job.queue_name
                    AND job.wait_position IS NOT NULL AND job.status IN ('pending', 'retry', 'blocked')
                ORDER BY job.priority DESC, job.wait_position LIMIT 1));
        RETURN;
    END IF;
    paused := ARRAY(
        SELECT pause.name FROM pgqueue_pause AS pause
        WHERE pause.kind = 'queue' AND (pause.until IS NULL OR pause.until > p_now));
    FOR served IN
        SELECT one.queues, one.excluded FROM unnest(p_queues, p_excluded) AS one (queues, excluded)
        ORDER BY one.queues = '[]'  -- workers of few queues first: they are soon counted
    LOOP
        SELECT count(*) INTO higher FROM (
            SELECT FROM (
                SELECT jsonb_array_elements_text(served.queues) AS name
                UNION ALL
                SELECT name FROM _pgqueue_queues_with('claimable') AS name
                WHERE served.queues = '[]' AND (served.excluded ? name) IS NOT TRUE
            ) AS queue
            CROSS JOIN (VALUES (false), (true)) AS kind (is_grouped)
            CROSS JOIN LATERAL _pgqueue_first_of_priorities(queue.name, kind.is_grouped, 101, p_job.priority) AS first
            CROSS JOIN LATERAL (
                SELECT FROM pgqueue_job_live AS job
                WHERE job.status IN ('pending', 'retry') AND job.queue_name = queue.name
                    AND job.is_grouped = kind.is_grouped AND job.priority = first.priority
                    AND (job.run_after, job.id) >= (first.run_after, first.id) AND job.run_after <= p_now
                LIMIT most
            ) AS due
            WHERE queue.name <> ALL (paused) AND first.run_after <= p_now LIMIT higher
        ) AS part;
        EXIT WHEN higher = 0;
    END LOOP;
    IF p_job.group_key IS NULL THEN
        SELECT count(*) INTO same FROM (
            SELECT FROM _pgqueue_first_of_priorities(
                p_job.queue_name, false, p_job.priority + 1, p_job.priority - 1) AS first
            CROSS JOIN LATERAL (
                SELECT FROM pgqueue_job_live AS job
                WHERE job.status IN ('pending', 'retry') AND job.queue_name = p_job.queue_name
                    AND NOT job.is_grouped AND job.priority = p_job.priority
                    AND (job.run_after, job.id) >= (first.run_after, first.id)
                    AND (job.run_after, job.id) < (p_job.run_after, p_job.id)
                LIMIT most - higher
            ) AS due
        ) AS part;
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
    code := CASE
        WHEN higher + same > 0 OR groups > 0 THEN 'behind'
        WHEN EXISTS (
            SELECT FROM pgqueue_job_live AS made
            JOIN pg_locks AS own ON own.locktype = 'transactionid' AND own.transactionid = made.xmin
                AND own.pid = pg_backend_pid()
            WHERE made.id = p_job.id) THEN 'uncommitted'
        ELSE 'ready' END;
    facts := jsonb_build_object(
        'ahead', higher + same, 'higher', higher, 'priority', p_job.priority, 'group', p_job.group_key,
        'groups', groups);
END $$;
