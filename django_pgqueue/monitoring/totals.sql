-- The total of each queue and task, with the minutes that are not in it yet.
SELECT timestamptz 'epoch', part.queue_name, part.task_path, sum(part.done)::bigint, sum(part.failed)::bigint,
    sum(part.retried)::bigint, sum(part.cancelled)::bigint, sum(part.wait_seconds), sum(part.run_seconds),
    ARRAY[{wait_histogram_sums}], ARRAY[{run_histogram_sums}]
FROM (
    SELECT total.queue_name, total.task_path, total.done, total.failed, total.retried, total.cancelled,
        total.wait_seconds, total.run_seconds, total.wait_histogram, total.run_histogram
    FROM pgqueue_stat_rollup AS total WHERE total.span = 'total' AND total.start = 'epoch'
    UNION ALL
    SELECT stat.queue_name, stat.task_path, stat.done, stat.failed, stat.retried, stat.cancelled,
        stat.wait_seconds, stat.run_seconds, stat.wait_histogram, stat.run_histogram
    FROM pgqueue_stat AS stat WHERE NOT stat.rolled_up
) AS part
GROUP BY 2, 3
ORDER BY part.queue_name COLLATE "C", part.task_path COLLATE "C"
