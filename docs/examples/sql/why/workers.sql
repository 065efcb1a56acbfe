SELECT host, pid, state, queues, slots, holds_lock,
    clock_timestamp() - heartbeat_at AS silent_for
FROM pgqueue_worker
WHERE queues = '{}' OR 'mail' = ANY (queues)
ORDER BY heartbeat_at DESC;
