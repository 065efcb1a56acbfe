-- How many jobs were live in each minute of the last two days, and in each quarter of an hour before: as many as now,
-- but more by day than by night, with ups and downs of half an hour. Only of the queues of the demonstration:
-- other queues have counts of their own.
INSERT INTO pgqueue_depth (queue_name, minute, ready, scheduled, retrying, running, blocked, oldest_ready)
SELECT coalesce(past.queue_name, ''), past.minute, sum(past.ready), sum(past.scheduled), sum(past.retrying),
    sum(past.running), sum(past.blocked), max(past.oldest_ready)
FROM (
    SELECT depth.queue_name, counted.minute, round(depth.ready * factor) AS ready,
        round(depth.scheduled * factor) AS scheduled, round(depth.retrying * factor) AS retrying,
        depth.running, round(depth.blocked * factor) AS blocked,
        depth.oldest_ready * factor AS oldest_ready
    FROM _pgqueue_depth(1000000) AS depth, date_bin('1 minute', clock_timestamp(), 'epoch') AS now,
        generate_series(now - interval '7 days', now, interval '1 minute') AS counted (minute),
        LATERAL (
            SELECT max(part.size) FILTER (WHERE part.is_past) / max(part.size) FILTER (WHERE NOT part.is_past)
            FROM (VALUES (true, counted.minute), (false, now)) AS moment (is_past, at), LATERAL (SELECT moment.is_past,
                (0.5 + greatest(0, sin((extract(epoch FROM moment.at) / 43200 - 0.5) * pi())))
                * (1 + 0.1 * sin(extract(epoch FROM moment.at) / 600 + length(depth.queue_name)))
            ) AS part (is_past, size)
        ) AS scale (factor)
    WHERE starts_with(depth.queue_name, 'demo-') AND (
        counted.minute >= now - interval '2 days'
        OR counted.minute = date_bin('15 minutes', counted.minute, 'epoch'))
) AS past
GROUP BY GROUPING SETS ((past.queue_name, past.minute), (past.minute));
