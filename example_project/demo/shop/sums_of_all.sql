-- Make the sums of all queues anew, from the sums of each: the demonstration's come and go, the project's stay.
DELETE FROM pgqueue_stat_rollup WHERE queue_name = '';
INSERT INTO pgqueue_stat_rollup (
    span, start, queue_name, task_path, done, failed, retried, cancelled, wait_histogram, run_histogram, wait_seconds,
    run_seconds
)
SELECT part.span, part.start, '', '', sum(part.done), sum(part.failed), sum(part.retried), sum(part.cancelled),
    ARRAY[{wait_sums}], ARRAY[{run_sums}], sum(part.wait_seconds), sum(part.run_seconds)
FROM pgqueue_stat_rollup AS part WHERE part.task_path = '' GROUP BY 1, 2
