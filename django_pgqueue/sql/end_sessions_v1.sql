-- Terminate the sessions that still hold the locks of dead workers, if our role may do that. A process that is
-- suspended, or whose host is gone, may have been in the middle of a transaction. Its locks would last as long as
-- its socket, and block the jobs that it was claiming or reporting. A worker that comes back reconnects and finds
-- that it has lost its leases.
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
                USING HINT = 'Use the same role for all workers, or grant pg_signal_backend to this role.';
        END;
    END LOOP;
END $$;
