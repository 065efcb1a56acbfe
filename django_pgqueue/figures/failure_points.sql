-- One row for each of these groups and each step of the span, oldest first.
SELECT known.fingerprint, step.start, coalesce(sum(counted.failed), 0)::bigint, coalesce(sum(counted.retried), 0)::bigint
FROM unnest(%(fingerprints)s::text[]) AS known (fingerprint)
CROSS JOIN generate_series(
    date_bin(%(step)s, statement_timestamp() - %(back)s, 'epoch'), statement_timestamp(), %(step)s
) AS step (start)
LEFT JOIN pgqueue_failure_count AS counted ON counted.fingerprint = known.fingerprint AND counted.span = %(source)s
    AND counted.start >= step.start AND counted.start < step.start + %(step)s
GROUP BY 1, 2 ORDER BY 1, 2
