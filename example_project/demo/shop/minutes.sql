-- The minutes of the last two days, but none that maintenance forgets soon. It has added those that are over to the sums.
INSERT INTO pgqueue_stat (
    minute, rolled_up, queue_name, task_path, done, failed, retried, cancelled, wait_histogram, run_histogram,
    wait_seconds, run_seconds
)
SELECT part.start, part.start < %(over)s, part.queue_name, part.task_path, part.done, part.failed, part.retried,
    part.cancelled, part.wait_histogram, part.run_histogram, part.wait_seconds, part.run_seconds
FROM pgqueue_demo_stat AS part WHERE part.start > %(over)s - interval '47 hours 45 minutes'
