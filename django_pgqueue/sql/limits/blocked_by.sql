-- Why a job does not start: a row for each limit under which it is, with the jobs that hold its slots. That of its
-- limit key comes first. The place is the number of jobs that start before it (0: it is the next one), among the jobs
-- of its key and queue, counted up to 1,001; it is known for a key alone. Of a rate, next_start is when the next job
-- may start, if not now. A finished job, or one that is under no limit, has no rows.
CREATE FUNCTION pgqueue_blocked_by(
    id bigint, OUT name text, OUT limit_key text, OUT is_full boolean, OUT allowed integer, OUT running integer,
    OUT place integer, OUT holders bigint[], OUT next_start timestamptz
) RETURNS SETOF record LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT rule.name, rule.limit_key,
        coalesce(held.running >= rule.allowed, false) OR coalesce(rule.next_start > clock_timestamp(), false),
        rule.allowed, held.running,
        CASE WHEN rule.limit_key IS NOT NULL AND job.wait_position IS NOT NULL AND job.status <> 'running'
            THEN _pgqueue_place(job.limit_key, job.queue_name, job.priority, job.wait_position) END,
        held.holders, CASE WHEN rule.next_start > clock_timestamp() THEN rule.next_start END
    FROM pgqueue_job_live AS job
    CROSS JOIN LATERAL (
        SELECT own.name, own.limit_key, NULL::text AS queue_name,
            coalesce(setting.concurrency,
                CASE WHEN setting.rate IS NULL AND setting.is_overridden IS NOT TRUE THEN 1 END) AS allowed,
            _pgqueue_next_start(
                (SELECT rate.tat FROM pgqueue_rate AS rate WHERE rate.key = own.limit_key), clock_timestamp(),
                setting.rate, setting.per, setting.burst, 1) AS next_start, 1 AS nth
        FROM (SELECT split_part(job.limit_key, '/', 1) AS name, job.limit_key::text AS limit_key) AS own
        LEFT JOIN pgqueue_limit AS setting ON setting.name = own.name
        WHERE own.limit_key IS NOT NULL
        UNION ALL
        SELECT setting.name, NULL, CASE WHEN setting.name <> '*' THEN job.queue_name END, setting.concurrency,
            _pgqueue_next_start(
                (SELECT rate.tat FROM pgqueue_rate AS rate WHERE rate.key = setting.name), clock_timestamp(),
                setting.rate, setting.per, setting.burst, 1),
            CASE WHEN setting.name = '*' THEN 3 ELSE 2 END
        FROM pgqueue_limit AS setting WHERE setting.name IN ('*', 'queue:' || job.queue_name)
    ) AS rule
    CROSS JOIN LATERAL (
        SELECT count(*)::integer AS running, coalesce((array_agg(holder.id ORDER BY holder.id))[1:100], '{}') AS holders
        FROM pgqueue_job_live AS holder
        WHERE holder.status = 'running' AND CASE
            WHEN rule.limit_key IS NOT NULL THEN holder.limit_key = rule.limit_key
            WHEN rule.queue_name IS NOT NULL THEN holder.queue_name = rule.queue_name
            ELSE true END
    ) AS held
    WHERE job.id = pgqueue_blocked_by.id
    ORDER BY rule.nth
$$;
