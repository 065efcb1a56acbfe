SELECT queue_name, task_path, errors -> -1 ->> 'class' AS error_class, count(*) AS failed
FROM pgqueue_job_kept
WHERE status = 'failed' AND finished_at > clock_timestamp() - interval '5 minutes'
GROUP BY queue_name, task_path, error_class
ORDER BY failed DESC;
