-- Count the jobs that failed and were not retried, for each queue in the last hour and in the last day, up to
-- %(most)s. This takes one probe of the kept leaf's index for each queue, and one range scan for each count.
WITH RECURSIVE queues AS (
    (SELECT job.queue_name FROM pgqueue_job_kept AS job ORDER BY job.queue_name LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.queue_name FROM pgqueue_job_kept AS job
        WHERE job.queue_name > queues.queue_name ORDER BY job.queue_name LIMIT 1
    ) FROM queues WHERE queues.queue_name IS NOT NULL
)
SELECT queues.queue_name,
    (SELECT count(*) FROM (
        SELECT FROM pgqueue_job_kept AS job
        WHERE job.queue_name = queues.queue_name AND job.status = 'failed'
            AND job.finished_at >= statement_timestamp() - interval '1 hour'
        LIMIT %(most)s
    ) AS hour) AS hour,
    (SELECT count(*) FROM (
        SELECT FROM pgqueue_job_kept AS job
        WHERE job.queue_name = queues.queue_name AND job.status = 'failed'
            AND job.finished_at >= statement_timestamp() - interval '1 day'
        LIMIT %(most)s
    ) AS day) AS day
FROM queues WHERE queues.queue_name IS NOT NULL
