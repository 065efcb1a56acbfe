SELECT queue_name, status, count(*) AS jobs, max(run_after) AS last_run_after
FROM pgqueue_job_live
GROUP BY queue_name, status
ORDER BY queue_name, status;
