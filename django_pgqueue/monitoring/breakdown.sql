-- One row for each queue or task of the span. The other name stays empty. There are minutes in the future after the
-- clock was set back; a chart has no point for them, either.
SELECT date_bin(%(step)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch'),
    CASE WHEN %(by)s = 'queue' THEN part.queue_name ELSE '' END,
    CASE WHEN %(by)s = 'task' THEN part.task_path ELSE '' END, sum(part.done)::bigint,
    sum(part.failed)::bigint, sum(part.retried)::bigint, sum(part.cancelled)::bigint, sum(part.wait_seconds),
    sum(part.run_seconds), ARRAY[{wait_histogram_sums}], ARRAY[{run_histogram_sums}],
    extract(epoch FROM least(%(end)s::timestamptz, statement_timestamp())
        - date_bin(%(step)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch'))::float8
FROM part WHERE part.start <= statement_timestamp()
GROUP BY 2, 3
ORDER BY sum(part.done + part.failed + part.retried + part.cancelled) DESC, 2, 3
LIMIT %(most)s
