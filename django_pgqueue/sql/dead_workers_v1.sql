-- Return the workers that are dead, and lock their rows. A worker is dead if it was silent for too long
-- (allowed_silence_v1.sql) and its session lock is free. If the lock proves nothing (its host vanished, it is behind a
-- pooler, it lost its lock), the worker is dead if its last heartbeat is older than the lease.
--
-- All locks are free, although all workers are alive, after a start of the server, after a restart because one of its
-- processes crashed (which resets its statistics), and after the promotion of a standby (which replayed until then).
-- No worker can send a heartbeat for a while then. So if a worker has not sent a heartbeat since such an event, a free
-- lock proves nothing, and its lease is counted from the moment when this session connected, or from that event if the
-- role may not see the session, because it was assumed.
--
-- Race: a worker may return while it is found dead. It registers before it claims again, and for that it waits for
-- the lock of its row. So it does not lose jobs that it claimed afterwards.
CREATE FUNCTION pgqueue_dead_workers_v1(p_heartbeat double precision, p_lease double precision)
RETURNS SETOF bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    candidate record;
    lock_key bigint;
    lease interval := p_lease * interval '1 second';
    upset timestamptz := greatest(
        pg_postmaster_start_time(), pg_last_xact_replay_timestamp(),
        (SELECT stats.stats_reset FROM pg_stat_bgwriter AS stats));
    watching timestamptz := coalesce(
        (SELECT session.backend_start FROM pg_stat_get_activity(pg_backend_pid()) AS session), upset);
BEGIN
    FOR candidate IN
        SELECT worker.id, worker.holds_lock, worker.heartbeat_at,
            worker.heartbeat_at > upset AS is_undisturbed,
            worker.heartbeat_at < clock_timestamp() - lease AS is_overdue
        FROM pgqueue_worker AS worker
        WHERE worker.heartbeat_at < clock_timestamp()
            - interval '1 second' * pgqueue_allowed_silence_v1(worker.started_jobs, p_heartbeat, p_lease)
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
