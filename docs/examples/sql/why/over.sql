SELECT status, finished_at, attempts, result, waiting_reason,
    errors -> -1 ->> 'class' AS error_class, errors -> -1 ->> 'message' AS error_message
FROM pgqueue_job
WHERE id = 1;
