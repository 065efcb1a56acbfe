-- One turn of upkeep for the ring of history; returns what it did, in words. It may only empty the shelf
-- after the current one, and only if nothing in it is younger than the retention; once that shelf is
-- empty and the current one is a sixth of the retention old, the ring moves on. A clock that was set
-- back makes `since` lie in the future: then it starts anew.
--
-- Race: a finish may commit a young job into the shelf between the check and the TRUNCATE. So the order
-- is lock, check, truncate, and the isolation level must be READ COMMITTED: under REPEATABLE READ the
-- check would use a snapshot from before the lock. A reader in the way makes it give up after 50 ms, so
-- nobody queues behind it for longer. SECURITY DEFINER: the worker's role needs no right to TRUNCATE.
CREATE FUNCTION pgqueue_rotate_v1() RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    ring pgqueue_ring;
    next_shelf integer;
    occupied boolean;
    young boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pgqueue: the ring turns only under READ COMMITTED, not %',
            current_setting('transaction_isolation') USING ERRCODE = 'invalid_transaction_state';
    END IF;
    IF NOT pg_try_advisory_xact_lock(pgqueue_lock_key_v1('upkeep', 'ring')) THEN
        RETURN 'busy';
    END IF;
    SELECT * INTO STRICT ring FROM pgqueue_ring;
    next_shelf := ring.current % 8 + 1;
    IF ring.since > clock_timestamp() THEN
        UPDATE pgqueue_ring SET since = clock_timestamp();
        RETURN 'restarted: the clock was set back';
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM pgqueue_job_past_%s)', next_shelf) INTO occupied;
    IF occupied THEN
        -- A cheap look before the lock, so that a shelf that is still young is never locked. max() is the end of
        -- the index whatever the statistics say; an EXISTS has read the whole shelf where there were none.
        EXECUTE format('SELECT max(finished_at) > $1 FROM pgqueue_job_past_%s', next_shelf)
            INTO young USING clock_timestamp() - ring.retention;
        IF young THEN
            RETURN 'waiting for shelf ' || next_shelf;
        END IF;
        EXECUTE format('LOCK TABLE pgqueue_job_past_%s IN ACCESS EXCLUSIVE MODE', next_shelf);
        EXECUTE format('SELECT max(finished_at) > $1 FROM pgqueue_job_past_%s', next_shelf)
            INTO young USING clock_timestamp() - ring.retention;
        IF young THEN
            RETURN 'waiting for shelf ' || next_shelf;
        END IF;
        EXECUTE format('TRUNCATE pgqueue_job_past_%s', next_shelf);
        RETURN 'emptied shelf ' || next_shelf;
    END IF;
    IF ring.since + ring.retention / 6 <= clock_timestamp() THEN
        UPDATE pgqueue_ring SET current = next_shelf, since = clock_timestamp();
        RETURN 'moved to shelf ' || next_shelf;
    END IF;
    RETURN 'nothing to do';
EXCEPTION WHEN lock_not_available THEN
    RETURN 'gave way to a reader of shelf ' || next_shelf;
END $$;
