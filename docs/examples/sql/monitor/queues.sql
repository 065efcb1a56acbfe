WITH live AS (
    SELECT queue_name, status, run_after,
        status IN ('pending', 'retry') AND run_after <= clock_timestamp() AS is_ready
    FROM pgqueue_job_live
)
SELECT queue_name,
    count(*) FILTER (WHERE is_ready) AS ready,
    count(*) FILTER (WHERE status = 'pending' AND NOT is_ready) AS scheduled,
    count(*) FILTER (WHERE status = 'retry' AND NOT is_ready) AS retrying,
    count(*) FILTER (WHERE status = 'running') AS running,
    coalesce(
        extract(epoch FROM clock_timestamp() - min(run_after) FILTER (WHERE is_ready)), 0
    ) AS oldest_ready_seconds
FROM live
GROUP BY queue_name
ORDER BY queue_name;
