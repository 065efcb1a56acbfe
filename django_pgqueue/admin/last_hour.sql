-- The jobs that ran in the last hour by task and queue, the busiest first: counts, and the sums of the histograms.
WITH recent AS (
    SELECT stat.queue_name, stat.task_path, stat.done, stat.failed, stat.retried, stat.cancelled,
        stat.wait_histogram, stat.run_histogram
    FROM pgqueue_stat AS stat
    WHERE stat.minute >= statement_timestamp() - interval '1 hour'
        AND (%(queue)s = '' OR stat.queue_name = %(queue)s)
        AND (%(task)s = '' OR stat.task_path = %(task)s)
), counts AS (
    SELECT recent.queue_name, recent.task_path, sum(recent.done) AS done, sum(recent.failed) AS failed,
        sum(recent.retried) AS retried, sum(recent.cancelled) AS cancelled
    FROM recent GROUP BY recent.queue_name, recent.task_path
    ORDER BY sum(recent.done + recent.failed + recent.retried + recent.cancelled) DESC, 1, 2
    LIMIT %(most)s
), classes AS (
    SELECT recent.queue_name, recent.task_path, pair.place, sum(pair.waited) AS waited, sum(pair.ran) AS ran
    FROM recent JOIN counts USING (queue_name, task_path),
        unnest(recent.wait_histogram, recent.run_histogram) WITH ORDINALITY AS pair (waited, ran, place)
    GROUP BY recent.queue_name, recent.task_path, pair.place
)
SELECT counts.queue_name, counts.task_path, counts.done::bigint, counts.failed::bigint, counts.retried::bigint,
    counts.cancelled::bigint,
    ARRAY(SELECT coalesce(classes.waited, 0)::bigint FROM classes
        WHERE classes.queue_name = counts.queue_name AND classes.task_path = counts.task_path
        ORDER BY classes.place),
    ARRAY(SELECT coalesce(classes.ran, 0)::bigint FROM classes
        WHERE classes.queue_name = counts.queue_name AND classes.task_path = counts.task_path
        ORDER BY classes.place)
FROM counts ORDER BY counts.done + counts.failed + counts.retried + counts.cancelled DESC, 1, 2
