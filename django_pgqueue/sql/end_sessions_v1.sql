-- End the sessions that still hold the locks of workers that are dead, as far as our role may. A process that
-- is stopped, or whose host is gone, may have stopped in the middle of a transaction: its locks would stay for as
-- long as its socket does, and with them the jobs that it was claiming or reporting. Whoever comes back connects
-- anew and finds its leases lost.
CREATE FUNCTION pgqueue_end_sessions_v1(p_workers bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    session record;
BEGIN
    FOR session IN
        SELECT held.pid FROM pg_locks AS held
        JOIN unnest(p_workers) AS worker (id)
            ON (held.classid::bigint << 32 | held.objid::bigint) = pgqueue_lock_key_v1('worker', worker.id::text)
        WHERE held.locktype = 'advisory' AND held.objsubid = 1 AND held.granted
            AND held.database = (SELECT base.oid FROM pg_database AS base WHERE base.datname = current_database())
            AND held.pid <> pg_backend_pid()
    LOOP
        BEGIN
            PERFORM pg_terminate_backend(session.pid);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE WARNING 'pgqueue: the session % of a dead worker cannot be ended by %', session.pid, current_user
                USING HINT = 'Let all workers use one role, or grant it pg_signal_backend.';
        END;
    END LOOP;
END $$;
