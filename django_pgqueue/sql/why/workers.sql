-- Whether workers can take jobs of a queue (pgqueue_why): no_worker if none that is alive serves it, and busy if all
-- slots of those that do are taken. Otherwise the code is NULL. Workers that are silent or ending start nothing; one in
-- another language sends heartbeats at its own pace, so it is silent after half of the lease. Jobs that a worker has
-- lost still take their slots. queues and excluded are what the workers serve, each combination once, as JSON arrays.
CREATE FUNCTION _pgqueue_why_workers(
    p_queue text, p_now timestamptz, p_heartbeat double precision, p_lease double precision,
    OUT code text, OUT facts jsonb, OUT queues jsonb[], OUT excluded jsonb[]
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    crew record;
    busy bigint[];
BEGIN
    SELECT array_agg(worker.id) FILTER (WHERE worker.is_able) AS ids,
        coalesce(sum(worker.slots) FILTER (WHERE worker.is_able), 0) AS slots,
        coalesce(sum(worker.running) FILTER (WHERE worker.is_able), 0) AS running,
        coalesce(sum(worker.lost) FILTER (WHERE worker.is_able), 0) AS lost,
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
                    ELSE p_queue <> ALL (member.exclude_queues) END
                    AS serves
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
        busy := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND job.worker = ANY (crew.ids) LIMIT 10000);
        facts := jsonb_build_object(
            'workers', cardinality(crew.ids), 'slots', crew.slots, 'lost', nullif(crew.lost, 0),
            'longest', _pgqueue_why_longest(busy, 5),
            'since', (SELECT max(job.last_attempted_at) FROM pgqueue_job_live AS job WHERE job.id = ANY (busy)));
    END IF;
END $$;
