-- The attempts of a group in a span by task, by queue, and by version, each the largest first.
SELECT part.kind, part.name, part.failed, part.retried
FROM (
    SELECT one.kind, one.name, sum(counted.failed)::bigint AS failed, sum(counted.retried)::bigint AS retried,
        row_number() OVER (PARTITION BY one.kind ORDER BY sum(counted.failed + counted.retried) DESC, one.name) AS place
    FROM pgqueue_failure_count AS counted CROSS JOIN LATERAL (VALUES
        ('task', counted.task_path), ('queue', counted.queue_name), ('version', counted.version)
    ) AS one (kind, name)
    WHERE counted.fingerprint = %(fingerprint)s AND counted.span = %(source)s
        AND counted.start < %(end)s::timestamptz
        AND counted.start >= date_bin(%(grain)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch')
    GROUP BY 1, 2
) AS part
WHERE part.place <= %(most)s
ORDER BY part.kind, part.place
