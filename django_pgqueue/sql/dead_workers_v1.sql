-- The workers that are dead, their rows locked. Dead is who has missed two heartbeats and whose session lock is
-- free; or, where the lock says nothing (a host that vanished, a pooler, a worker that lost its lock), whose
-- last heartbeat is older than the lease.
--
-- A start of the server, a restart after a crash of one of its processes (which resets its statistics) and the
-- promotion of a standby (which has replayed until then) free all locks although everybody lives, and for a
-- while nobody can beat. So about a worker that has not beaten since, a free lock says nothing, and its lease is
-- counted from the moment when this session began to watch.
--
-- Race: a worker may return while it is found dead. It registers before it claims again, which waits for the
-- lock of its row, so that no job is taken from it that it claimed afterwards.
CREATE FUNCTION pgqueue_dead_workers_v1(p_heartbeat double precision, p_lease double precision)
RETURNS SETOF bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    candidate record;
    lock_key bigint;
    lease interval := p_lease * interval '1 second';
    upset timestamptz := greatest(
        pg_postmaster_start_time(), pg_last_xact_replay_timestamp(),
        (SELECT stats.stats_reset FROM pg_stat_bgwriter AS stats));
    watching timestamptz := (
        SELECT session.backend_start FROM pg_stat_get_activity(pg_backend_pid()) AS session);
BEGIN
    FOR candidate IN
        SELECT worker.id, worker.holds_lock, worker.heartbeat_at,
            worker.heartbeat_at > upset AS is_undisturbed,
            worker.heartbeat_at < clock_timestamp() - lease AS is_overdue
        FROM pgqueue_worker AS worker
        WHERE worker.heartbeat_at < clock_timestamp() - 2.5 * p_heartbeat * interval '1 second'
        ORDER BY worker.id FOR UPDATE SKIP LOCKED
    LOOP
        lock_key := pgqueue_lock_key_v1('worker', candidate.id::text);
        IF candidate.is_overdue AND (candidate.is_undisturbed OR watching < clock_timestamp() - lease) THEN
            RETURN NEXT candidate.id;
        ELSIF candidate.is_undisturbed AND candidate.holds_lock AND pg_try_advisory_lock(lock_key) THEN
            PERFORM pg_advisory_unlock(lock_key);
            RETURN NEXT candidate.id;
        END IF;
    END LOOP;
END $$;
