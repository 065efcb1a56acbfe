-- The queues that have jobs in the kept leaf, with one probe of its index for each queue.
WITH RECURSIVE queues AS (
    (SELECT job.queue_name FROM pgqueue_job_kept AS job ORDER BY job.queue_name LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.queue_name FROM pgqueue_job_kept AS job
        WHERE job.queue_name > queues.queue_name ORDER BY job.queue_name LIMIT 1
    ) FROM queues WHERE queues.queue_name IS NOT NULL
)
SELECT queues.queue_name FROM queues WHERE queues.queue_name IS NOT NULL LIMIT %s
