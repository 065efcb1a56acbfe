-- The workers that are dead: their session lock is free and they have missed two heartbeats; or, where the
-- lock says nothing (a host that vanished, a pooler), the last heartbeat is older than the lease. After a
-- start of the server all locks are free although everybody lives: for the time of a lease it counts alone.
CREATE FUNCTION pgqueue_dead_workers_v1(p_heartbeat double precision, p_lease double precision)
RETURNS SETOF bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    candidate record;
    lock_key bigint;
    locks_count boolean := pg_postmaster_start_time() < clock_timestamp() - p_lease * interval '1 second';
BEGIN
    FOR candidate IN
        SELECT worker.id, worker.holds_lock,
            worker.heartbeat_at < clock_timestamp() - p_lease * interval '1 second' AS overdue
        FROM pgqueue_worker AS worker
        WHERE worker.heartbeat_at < clock_timestamp() - 2.5 * p_heartbeat * interval '1 second'
    LOOP
        lock_key := pgqueue_key_v1('worker', candidate.id::text);
        IF candidate.overdue THEN
            RETURN NEXT candidate.id;
        ELSIF candidate.holds_lock AND locks_count AND pg_try_advisory_lock(lock_key) THEN
            PERFORM pg_advisory_unlock(lock_key);
            RETURN NEXT candidate.id;
        END IF;
    END LOOP;
END $$;
