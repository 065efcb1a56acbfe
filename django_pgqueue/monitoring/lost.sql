-- Running jobs whose worker is dead or has no row, by queue. The order is that of the index, so it is read only up to
-- the limit.
SELECT running.queue_name, count(*) FROM (
    SELECT job.queue_name, job.worker FROM pgqueue_job_live AS job
    WHERE job.status = 'running' ORDER BY job.worker LIMIT %(most)s
) AS running
WHERE NOT EXISTS (
    SELECT FROM pgqueue_worker AS worker
    WHERE worker.id = running.worker AND worker.heartbeat_at >= statement_timestamp() - %(lease)s * interval '1 s'
)
GROUP BY running.queue_name
