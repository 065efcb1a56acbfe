-- The attempts of a group in a span by task, by queue, and by version, each the largest first.
SELECT part.kind, part.name, part.failed, part.retried
FROM (
    SELECT kind.name AS kind, name.name, sum(counted.failed)::bigint AS failed, sum(counted.retried)::bigint AS retried,
        row_number() OVER (PARTITION BY kind.name ORDER BY sum(counted.failed + counted.retried) DESC, name.name) AS place
    FROM pgqueue_failure_count AS counted
    CROSS JOIN (VALUES ('task'), ('queue'), ('version')) AS kind (name)
    CROSS JOIN LATERAL (SELECT CASE kind.name
        WHEN 'task' THEN counted.task_path WHEN 'queue' THEN counted.queue_name ELSE counted.version END AS name) AS name
    WHERE counted.fingerprint = %(fingerprint)s AND counted.span = %(source)s
        AND counted.start >= date_bin(%(grain)s, statement_timestamp() - %(back)s, 'epoch')
    GROUP BY 1, 2
) AS part
WHERE part.place <= %(most)s
ORDER BY part.kind, part.place
