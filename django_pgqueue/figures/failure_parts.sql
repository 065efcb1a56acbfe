-- The attempts of a group in a span by task, by queue, or by version, the largest first.
SELECT CASE %(by)s WHEN 'task' THEN counted.task_path WHEN 'queue' THEN counted.queue_name ELSE counted.version END,
    sum(counted.failed)::bigint, sum(counted.retried)::bigint
FROM pgqueue_failure_count AS counted
WHERE counted.fingerprint = %(fingerprint)s AND counted.span = %(source)s
    AND counted.start >= date_bin(%(grain)s, statement_timestamp() - %(back)s, 'epoch')
GROUP BY 1 ORDER BY sum(counted.failed + counted.retried) DESC, 1
LIMIT %(most)s
