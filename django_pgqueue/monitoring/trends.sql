-- What ended in each step of the span, for each of these queues or tasks. Steps without attempts have no row.
SELECT CASE WHEN %(by)s = 'queue' THEN part.queue_name ELSE part.task_path END,
    extract(epoch FROM date_bin(%(step)s, part.start, 'epoch')
        - date_bin(%(step)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch'))
        / extract(epoch FROM %(step)s),
    sum(part.done)::bigint, sum(part.failed + part.retried)::bigint
FROM part
WHERE CASE WHEN %(by)s = 'queue' THEN part.queue_name ELSE part.task_path END = ANY (%(names)s)
GROUP BY 1, 2
