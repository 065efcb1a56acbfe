-- Count the jobs of each queue that failed in the last hour, in the hour before, and in the last day, and were not
-- retried, together up to %(most)s. The queues come from kept_queues.sql, with which the statement begins. A queue
-- takes one range scan of the kept leaf's index.
, since AS MATERIALIZED (
    SELECT statement_timestamp() - interval '1 hour' AS hour, statement_timestamp() - interval '2 hours' AS before,
        statement_timestamp() - interval '1 day' AS day
)
SELECT kept.queue_name, count.hour, count.before - count.hour, count.day
FROM since, kept CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE newest.finished_at >= since.hour) AS hour,
        count(*) FILTER (WHERE newest.finished_at >= since.before) AS before,
        count(*) AS day
    FROM (
        SELECT job.finished_at FROM pgqueue_job_kept AS job
        WHERE job.queue_name = kept.queue_name AND job.status = 'failed' AND job.finished_at >= since.day
        ORDER BY job.finished_at DESC LIMIT %(most)s
    ) AS newest
) AS count
WHERE count.day > 0
