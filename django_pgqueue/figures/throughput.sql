-- The jobs that have ended a second in each queue, since the last full minute began.
SELECT stat.queue_name,
    sum(stat.done + stat.failed + stat.cancelled)
        / date_part('epoch', min(clock.now) - min(clock.minute) + interval '1 minute')
FROM (SELECT now() AS now, date_trunc('minute', now()) AS minute) AS clock
JOIN pgqueue_stat AS stat ON stat.minute BETWEEN clock.minute - interval '1 minute' AND clock.minute
GROUP BY stat.queue_name
