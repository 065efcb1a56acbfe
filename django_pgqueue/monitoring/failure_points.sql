-- One row for each of these groups and each step of the span, oldest first.
WITH sums AS (
    SELECT counted.fingerprint, date_bin(%(step)s, counted.start, 'epoch') AS start,
        sum(counted.failed)::bigint AS failed, sum(counted.retried)::bigint AS retried
    FROM pgqueue_failure_count AS counted
    WHERE counted.span = %(source)s AND counted.fingerprint = ANY (%(fingerprints)s::text[])
        AND counted.start < %(end)s::timestamptz
        AND counted.start >= date_bin(%(step)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch')
    GROUP BY 1, 2
)
SELECT known.fingerprint, step.start, coalesce(sums.failed, 0), coalesce(sums.retried, 0)
FROM unnest(%(fingerprints)s::text[]) AS known (fingerprint)
CROSS JOIN generate_series(
    date_bin(%(step)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch'),
    least(%(end)s::timestamptz - interval '1 us', statement_timestamp()), %(step)s
) AS step (start)
LEFT JOIN sums ON sums.fingerprint = known.fingerprint AND sums.start = step.start
ORDER BY 1, 2
