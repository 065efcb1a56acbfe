-- One row for each step of the span. The names stay empty.
, sums AS (
    SELECT date_bin(%(step)s, part.start, 'epoch') AS start, sum(part.done)::bigint AS done,
        sum(part.failed)::bigint AS failed, sum(part.retried)::bigint AS retried,
        sum(part.cancelled)::bigint AS cancelled, sum(part.wait_seconds) AS wait_seconds,
        sum(part.run_seconds) AS run_seconds, ARRAY[{wait_histogram_sums}] AS wait_histogram,
        ARRAY[{run_histogram_sums}] AS run_histogram
    FROM part GROUP BY 1
)
SELECT step.start, '', '', coalesce(sums.done, 0), coalesce(sums.failed, 0), coalesce(sums.retried, 0),
    coalesce(sums.cancelled, 0), coalesce(sums.wait_seconds, 0), coalesce(sums.run_seconds, 0),
    coalesce(sums.wait_histogram, '{{}}'), coalesce(sums.run_histogram, '{{}}'),
    extract(epoch FROM least(%(step)s, least(%(end)s::timestamptz, statement_timestamp()) - step.start))::float8
FROM generate_series(
    date_bin(%(step)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch'),
    least(%(end)s::timestamptz - interval '1 us', statement_timestamp()), %(step)s
) AS step (start)
LEFT JOIN sums ON sums.start = step.start
ORDER BY step.start
