-- The workers whose last heartbeat is older than the lease, and whose session lock is free. A worker that lives holds
-- its lock. _pgqueue_recover_dead waits a lease longer after a start of the server, which time travel cannot move.
SELECT array_agg(silent.id) FROM (
    SELECT worker.id, _pgqueue_lock_key('worker', worker.id::text) AS lock_key FROM pgqueue_worker AS worker
    WHERE worker.heartbeat_at < clock_timestamp() - %s * interval '1 second'
    OFFSET 0
) AS silent
WHERE CASE WHEN pg_try_advisory_lock(silent.lock_key) THEN pg_advisory_unlock(silent.lock_key) END
