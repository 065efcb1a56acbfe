-- What ran in each queue: in the last full minute, since it began for each second, in the last hour, and in the hour before.
-- Minutes are the full minutes of the database's clock, as in the statistics.
SELECT stat.queue_name,
    coalesce(sum(stat.done + stat.failed + stat.cancelled) FILTER (WHERE stat.minute = clock.minute - interval '1 minute'), 0)::bigint,
    coalesce(sum(stat.done + stat.failed + stat.cancelled) FILTER (WHERE stat.minute >= clock.minute - interval '1 minute'), 0)
        / date_part('epoch', min(clock.now) - min(clock.minute) + interval '1 minute'),
    coalesce(sum(stat.failed) FILTER (WHERE stat.minute >= clock.minute - interval '59 minutes'), 0)::bigint,
    coalesce(sum(stat.failed) FILTER (WHERE stat.minute < clock.minute - interval '59 minutes'), 0)::bigint
FROM (SELECT now() AS now, date_trunc('minute', now()) AS minute) AS clock
JOIN pgqueue_stat AS stat ON stat.minute >= clock.minute - interval '119 minutes'
GROUP BY stat.queue_name
