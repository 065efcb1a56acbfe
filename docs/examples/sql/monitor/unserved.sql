SELECT job.queue_name, count(*) AS ready
FROM pgqueue_job_live AS job
WHERE job.status IN ('pending', 'retry') AND job.run_after <= clock_timestamp()
    AND NOT EXISTS (
        SELECT FROM pgqueue_worker AS worker
        WHERE (worker.queues = '{}' OR job.queue_name = ANY (worker.queues))
            AND job.queue_name <> ALL (worker.exclude_queues)
            AND worker.heartbeat_at > clock_timestamp() - interval '30 seconds'
    )
GROUP BY job.queue_name
ORDER BY job.queue_name;
