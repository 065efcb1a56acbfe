-- Jobs of the last seven days that are over: more by day than by night, and many failures while a bad deploy was out. The
-- number of jobs of each minute and task is the difference of two rounded sums, so that exactly %(jobs)s are made.
--
-- They go to the shelves on which the ring of history would have put them at their time (_pgqueue_rotate): so maintenance
-- drops them when they are as old as the setting says. Nothing but the guard of updates is attached to these tables.
WITH task AS (
    SELECT * FROM jsonb_to_recordset(%(tasks)s) AS task (
        path text, queue_name text, weight float8, seconds float8, waits float8, failing float8, workers bigint[])
), slot AS (
    SELECT task.*, minute,
        task.weight * (0.3 + greatest(0, sin((extract(epoch FROM minute) / 43200 - 0.5) * pi()))) AS share,
        minute BETWEEN now - interval '52 hours' AND now - interval '50 hours 50 minutes' AS deployed
    FROM date_trunc('minute', statement_timestamp()) AS now, task,
        generate_series(now - interval '7 days', now - interval '1 minute', interval '1 minute') AS minute
), summed AS (
    SELECT slot.*, sum(slot.share) OVER () AS whole,
        sum(slot.share) OVER (ORDER BY slot.minute, slot.path ROWS UNBOUNDED PRECEDING) AS until
    FROM slot
), made AS (
    SELECT summed.*, random() AS luck, random() AS chance, random() AS wait_luck, n,
        -- About a normal distribution, so that the durations are about a lognormal one.
        summed.seconds * exp(1.4 * (random() + random() + random() - 1.5)) AS ran
    FROM summed, generate_series(
        round(%(jobs)s * (summed.until - summed.share) / summed.whole)::bigint,
        round(%(jobs)s * summed.until / summed.whole)::bigint - 1) AS n
), ended AS (
    SELECT made.*, made.minute + interval '1 minute' * random() AS finished_at,
        made.waits * -ln(1 - made.wait_luck) * CASE WHEN made.deployed THEN 6 ELSE 1 + made.share / made.weight END
            AS waited,
        CASE
            WHEN made.luck < CASE
                WHEN made.deployed AND made.path = ANY (%(deployed)s)
                THEN 0.5 ELSE made.failing END THEN 'failed'
            WHEN made.luck > 0.995 THEN 'cancelled'
            ELSE 'done'
        END AS status
    FROM made
), error AS (
    -- Each error of a task has a range of the numbers from 0 to 1, as wide as it is frequent.
    SELECT error.*,
        coalesce(sum(error.weight) OVER (others ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
            / sum(error.weight) OVER (others ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS low,
        sum(error.weight) OVER (others ROWS UNBOUNDED PRECEDING)
            / sum(error.weight) OVER (others ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS high
    FROM jsonb_to_recordset(%(errors)s) AS error (
        task_path text, weight float8, name text, message text, fingerprint text, traceback text, deploy boolean)
    WINDOW others AS (PARTITION BY error.task_path, error.deploy ORDER BY error.fingerprint)
), shelved AS (
    -- The oldest shelf is never needed: seven days are at most six sixths of the retention before the current one.
    SELECT ended.*, CASE
        WHEN ended.status = 'failed' THEN 9
        WHEN ended.finished_at >= ring.since THEN ring.current
        ELSE (ring.current - 1 + 8 - least(6, ceil(
            extract(epoch FROM ring.since - ended.finished_at) / extract(epoch FROM ring.retention / 6))::integer)) %% 8 + 1
    END AS shelf
    FROM ended, pgqueue_ring AS ring
)
INSERT INTO pgqueue_job (
    shelf, status, task_path, queue_name, args, kwargs, run_after, enqueued_at, attempts, worker, started_at,
    last_attempted_at, finished_at, duration, result, errors, error_fingerprint, logs
)
SELECT job.shelf, job.status, job.path, job.queue_name, jsonb_build_array(1000 + job.n),
    CASE WHEN job.n %% 5 = 0 THEN '{"locale": "en"}'::jsonb ELSE '{}' END,
    job.finished_at - interval '1 second' * (job.ran + job.waited),
    job.finished_at - interval '1 second' * (job.ran + job.waited + tries.took),
    CASE WHEN job.status = 'failed' THEN 3 WHEN job.status = 'cancelled' THEN 0 WHEN error.name IS NOT NULL THEN 2
        ELSE 1 END,
    CASE WHEN job.status <> 'cancelled' THEN job.workers[1 + job.n %% cardinality(job.workers)] END,
    CASE WHEN job.status <> 'cancelled' THEN job.finished_at - interval '1 second' * (job.ran + tries.took) END,
    CASE WHEN job.status <> 'cancelled' THEN job.finished_at - interval '1 second' * job.ran END,
    job.finished_at,
    CASE WHEN job.status <> 'cancelled' THEN job.ran END,
    CASE WHEN job.status = 'done' AND job.n %% 4 = 0 THEN jsonb_build_object('order', 1000 + job.n, 'ok', true) END,
    CASE WHEN error.name IS NULL THEN '[]' ELSE (
        SELECT jsonb_agg(jsonb_build_object(
            'class', error.name, 'message', replace(error.message, '%%s', (1000 + job.n)::text),
            'traceback', error.traceback, 'worker', job.workers[1 + (job.n + 3 - attempt) %% cardinality(job.workers)]::text, 'attempt', attempt,
            'version', CASE WHEN error.deploy THEN '2.4.0' WHEN job.minute > statement_timestamp() - interval '2 days'
                THEN '2.4.1' ELSE '2.3.9' END,
            'started_at', job.finished_at - interval '1 second' * (job.ran + (tries.number - attempt) * (job.ran + 30)),
            'finished_at', job.finished_at - interval '1 second' * (tries.number - attempt) * (job.ran + 30))
            ORDER BY attempt)
        FROM generate_series(1, CASE WHEN job.status = 'failed' THEN 3 ELSE 1 END) AS attempt
    ) END,
    CASE WHEN job.status = 'failed' THEN coalesce(error.fingerprint, '') ELSE '' END,
    CASE WHEN job.n %% 50 = 0 AND job.status = 'done' THEN jsonb_build_array(jsonb_build_object(
        'attempt', 1, 'lines', jsonb_build_array(jsonb_build_object(
            'at', job.finished_at, 'level', 'INFO', 'logger', 'demoshop', 'message', 'order ' || 1000 + job.n))))
    END
FROM shelved AS job
LEFT JOIN error ON error.task_path = job.path
    AND (job.status = 'failed' OR job.status = 'done' AND job.chance < 0.02)
    AND error.deploy = (job.status = 'failed' AND job.deployed AND job.path = ANY (%(deployed)s))
    AND job.wait_luck >= error.low AND job.wait_luck < error.high
-- A job that failed before was tried again after 30 seconds. All its attempts took as long as the last one.
CROSS JOIN LATERAL (
    SELECT count.number, (count.number - 1) * (job.ran + 30) AS took
    FROM (VALUES (CASE WHEN error.name IS NULL THEN 1 WHEN job.status = 'failed' THEN 3 ELSE 2 END)) AS count (number)
) AS tries
ORDER BY job.minute
