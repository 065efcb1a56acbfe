SELECT host, pid, state, queues, exclude_queues, slots, holds_lock,
    clock_timestamp() - heartbeat_at AS silent_for
FROM pgqueue_worker
WHERE (queues = '{}' OR 'mail' = ANY (queues)) AND 'mail' <> ALL (exclude_queues)
ORDER BY heartbeat_at DESC;
