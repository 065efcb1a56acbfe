SELECT id, task_path, status, waiting_reason, enqueued_at
FROM pgqueue_job
WHERE shelf = 0 AND waiting_reason <> ''
ORDER BY id;
