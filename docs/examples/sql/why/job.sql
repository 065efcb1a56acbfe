SELECT status, queue_name, priority, run_after,
    run_after > clock_timestamp() AS is_scheduled, attempts, waiting_reason,
    expires_at, cancel_requested_at, worker, finished_at
FROM pgqueue_job
WHERE id = 1;
