-- The newest count in each step of a span. A minute is known by the row of all queues together: without one of its own,
-- a queue had no jobs then.
SELECT step.start, CASE WHEN found THEN coalesce(depth.ready, 0) END,
    CASE WHEN found THEN coalesce(depth.scheduled, 0) END, CASE WHEN found THEN coalesce(depth.retrying, 0) END,
    CASE WHEN found THEN coalesce(depth.running, 0) END, CASE WHEN found THEN coalesce(depth.blocked, 0) END,
    newest.versions
FROM generate_series(
    date_bin(%(step)s, least(%(end)s::timestamptz, statement_timestamp()) - %(back)s, 'epoch'),
    least(%(end)s::timestamptz - interval '1 us', statement_timestamp()), %(step)s
) AS step (start)
LEFT JOIN LATERAL (
    SELECT every.minute, true, every.versions FROM pgqueue_depth AS every
    WHERE every.queue_name = '' AND every.minute >= step.start AND every.minute < step.start + %(step)s
    ORDER BY every.minute DESC LIMIT 1
) AS newest (minute, found, versions) ON true
LEFT JOIN pgqueue_depth AS depth ON depth.queue_name = %(queue)s AND depth.minute = newest.minute
ORDER BY step.start
