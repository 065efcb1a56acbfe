-- A single statement (``Session.run``).
WITH registered AS (
    INSERT INTO pgqueue_worker (id, host, pid, supervisor, queues, exclude_queues, slots, version, state,
        holds_lock, memory, lost, started_at, heartbeat_at)
    VALUES (%s, %s, %s, %s, %s::text[], %s::text[], %s, %s, 'running', %s, %s, %s, clock_timestamp(),
        clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp(), holds_lock = excluded.holds_lock,
        memory = excluded.memory, lost = excluded.lost
    RETURNING {proof}
) {query}
