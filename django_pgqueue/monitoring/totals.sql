-- The total of each queue and task, and the minutes that are not in it yet.
SELECT total.queue_name, total.task_path, ARRAY[total.done, total.failed, total.retried, total.cancelled],
    ARRAY[total.wait_seconds, total.run_seconds], total.wait_histogram, total.run_histogram
FROM pgqueue_stat_rollup AS total WHERE total.span = 'total' AND total.start = 'epoch'
UNION ALL
SELECT stat.queue_name, stat.task_path, ARRAY[stat.done, stat.failed, stat.retried, stat.cancelled],
    ARRAY[stat.wait_seconds, stat.run_seconds], stat.wait_histogram, stat.run_histogram
FROM pgqueue_stat AS stat WHERE NOT stat.rolled_up
