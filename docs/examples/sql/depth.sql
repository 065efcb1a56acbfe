SELECT queue_name, status, count(*), clock_timestamp() - min(run_after) AS oldest
FROM pgqueue_job_live
GROUP BY queue_name, status
ORDER BY queue_name, status;
