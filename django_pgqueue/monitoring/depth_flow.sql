-- The counts of the last ten minutes, and what ended between the first and the newest: each queue, and all together.
WITH counted AS MATERIALIZED (
    SELECT min(every.minute) AS first, max(every.minute) AS newest,
        (SELECT middle.minute FROM pgqueue_depth AS middle
        WHERE middle.queue_name = '' AND middle.minute > statement_timestamp() - interval '6 minutes'
        ORDER BY middle.minute LIMIT 1) AS half
    FROM pgqueue_depth AS every
    WHERE every.queue_name = '' AND every.minute > statement_timestamp() - interval '11 minutes'
), depth AS (
    SELECT depth.*,
        depth.ready + depth.scheduled + depth.retrying + depth.running + depth.blocked AS live
    FROM counted JOIN pgqueue_depth AS depth ON depth.minute IN (counted.first, counted.half, counted.newest)
), ended AS (
    SELECT coalesce(stat.queue_name, '') AS queue_name, sum(stat.done + stat.failed + stat.cancelled) AS jobs
    FROM counted JOIN pgqueue_stat AS stat ON stat.minute >= counted.first AND stat.minute < counted.newest
    GROUP BY GROUPING SETS ((stat.queue_name), ())
), queue AS (
    SELECT depth.queue_name, coalesce(sum(depth.ready) FILTER (WHERE depth.minute = counted.half), 0) AS middle,
        coalesce(sum(depth.ready) FILTER (WHERE depth.minute = counted.first), 0) AS before,
        coalesce(sum(depth.live) FILTER (WHERE depth.minute = counted.first), 0) AS live
    FROM counted, depth GROUP BY 1
)
SELECT queue.queue_name, coalesce(newest.ready, 0), coalesce(newest.scheduled, 0), coalesce(newest.retrying, 0),
    coalesce(newest.running, 0), coalesce(newest.blocked, 0), coalesce(newest.oldest_ready, 0),
    counted.newest, date_part('epoch', counted.newest - counted.first), queue.middle::bigint, queue.before::bigint,
    greatest(0, coalesce(newest.live, 0) - queue.live + coalesce(ended.jobs, 0))::bigint,
    coalesce(ended.jobs, 0)::bigint
FROM counted CROSS JOIN queue LEFT JOIN ended USING (queue_name)
LEFT JOIN depth AS newest ON newest.queue_name = queue.queue_name AND newest.minute = counted.newest
WHERE counted.newest > statement_timestamp() - interval '3 minutes'
ORDER BY queue.queue_name
