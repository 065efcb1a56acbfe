SELECT queue_name,
    count(*) FILTER (WHERE status IN ('pending', 'retry') AND run_after <= clock_timestamp()) AS ready,
    count(*) FILTER (WHERE status IN ('pending', 'retry') AND run_after > clock_timestamp()) AS scheduled,
    count(*) FILTER (WHERE status = 'running') AS running,
    coalesce(extract(epoch FROM clock_timestamp() - min(run_after) FILTER (
        WHERE status IN ('pending', 'retry') AND run_after <= clock_timestamp())), 0) AS oldest_ready_seconds
FROM pgqueue_job_live
GROUP BY queue_name
ORDER BY queue_name;
