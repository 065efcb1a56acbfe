-- The groups of failures of a span, the largest first, or a single group, also if it has none in the span. The counts
-- of a span begin at a multiple of their length, so they may begin a little earlier. It ends now, or at its end.
WITH part AS (
    SELECT counted.fingerprint, sum(counted.failed)::bigint AS failed, sum(counted.retried)::bigint AS retried
    FROM pgqueue_failure_count AS counted
    WHERE counted.span = %(source)s AND counted.start < %(end)s::timestamptz
        AND counted.start >= date_bin(%(grain)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch')
        AND (%(fingerprint)s = '' OR counted.fingerprint = %(fingerprint)s)
        AND (%(queue)s = '' OR counted.queue_name = %(queue)s) AND (%(task)s = '' OR counted.task_path = %(task)s)
    GROUP BY 1
)
SELECT one.fingerprint, one.error_class, one.message, one.first_seen, one.last_seen, coalesce(part.failed, 0),
    coalesce(part.retried, 0), one.failed, one.retried, one.tasks, one.versions, one.sample_job, one.muted_at,
    one.muted_by, CASE WHEN %(fingerprint)s <> '' THEN one.traceback ELSE '' END
FROM pgqueue_failure_group AS one LEFT JOIN part ON part.fingerprint = one.fingerprint
WHERE one.fingerprint = %(fingerprint)s OR %(fingerprint)s = '' AND part.failed IS NOT NULL
    AND (one.muted_at IS NOT NULL) = %(muted)s
ORDER BY coalesce(part.failed, 0) + coalesce(part.retried, 0) DESC, one.last_seen DESC, one.fingerprint
LIMIT %(most)s
