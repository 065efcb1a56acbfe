-- The statistics of a span, for the statement that follows. Each attempt is in one part only: in a minute that is not
-- in the sums yet, or in a sum of its task, its queue, or all queues. Without a source, all minutes are read instead.
-- The start is written out at each place, so that the planner knows how few rows come after it. A span ends now, or at
-- its end.
WITH part AS NOT MATERIALIZED (
    SELECT stat.minute AS start, stat.queue_name, stat.task_path, stat.done, stat.failed, stat.retried,
        stat.cancelled, stat.wait_seconds, stat.run_seconds, stat.wait_histogram, stat.run_histogram
    FROM pgqueue_stat AS stat
    WHERE stat.minute >= date_bin(%(step)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch')
        AND stat.minute < %(end)s::timestamptz
        AND (%(source)s = '' OR NOT stat.rolled_up)
        AND (%(queue)s = '' OR stat.queue_name = %(queue)s) AND (%(task)s = '' OR stat.task_path = %(task)s)
    UNION ALL
    SELECT total.start, total.queue_name, total.task_path, total.done, total.failed, total.retried,
        total.cancelled, total.wait_seconds, total.run_seconds, total.wait_histogram, total.run_histogram
    FROM pgqueue_stat_rollup AS total
    WHERE total.span = %(source)s AND total.start < %(end)s::timestamptz
        AND total.start >= date_bin(%(step)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch')
        AND (total.task_path <> '') = %(of_task)s AND (total.queue_name <> '') = %(of_queue)s
        AND (%(queue)s = '' OR total.queue_name = %(queue)s) AND (%(task)s = '' OR total.task_path = %(task)s)
)
