-- Add the minutes that are over to one kind of sums, as maintenance does (_pgqueue_roll_up).
INSERT INTO pgqueue_stat_rollup (
    span, start, queue_name, task_path, done, failed, retried, cancelled, wait_histogram, run_histogram, wait_seconds,
    run_seconds
)
SELECT %(span)s, {start}, part.queue_name, {task_path}, sum(part.done), sum(part.failed), sum(part.retried),
    sum(part.cancelled), ARRAY[{wait_sums}], ARRAY[{run_sums}], sum(part.wait_seconds), sum(part.run_seconds)
FROM pgqueue_demo_stat AS part WHERE part.start < %(over)s AND ({start} > %(over)s - %(kept)s::interval OR {start} = 'epoch')
GROUP BY 2, 3, 4
