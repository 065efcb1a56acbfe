-- How many attempts of each queue ended a second: in the last full minute, and in the one that has not ended. There are
-- minutes in the future after the clock was set back. Histograms are not read: their sums would take most of the time.
SELECT stat.queue_name, sum(stat.done + stat.failed + stat.retried + stat.cancelled)::float8
    / extract(epoch FROM statement_timestamp() - since.start)::float8
FROM date_bin('1 minute', statement_timestamp() - interval '1 minute', 'epoch') AS since (start)
JOIN pgqueue_stat AS stat ON stat.minute BETWEEN since.start AND statement_timestamp()
GROUP BY stat.queue_name, since.start
