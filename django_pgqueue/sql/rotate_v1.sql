-- Do one step of maintenance for the ring of history, and return what was done, in words. It may only empty the shelf
-- after the current one, and only if no job in it is younger than the retention. When that shelf is empty and the
-- current one is a sixth of the retention old, the ring moves to the next shelf. If the clock was set back,
-- `since` is in the future and is set again.
--
-- Race: a finish may commit a young job into the shelf between the check and the TRUNCATE. So the order is lock,
-- check, truncate, and the isolation level must be READ COMMITTED: under REPEATABLE READ the check would use a
-- snapshot from before the lock. If a reader holds the shelf, this gives up after 50 ms, so nobody waits behind it
-- for longer. SECURITY DEFINER: the worker's role does not need the TRUNCATE privilege.
CREATE FUNCTION pgqueue_rotate_v1() RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    ring pgqueue_ring;
    next_shelf integer;
    occupied boolean;
    young boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pgqueue: the ring of history can be turned only under READ COMMITTED, not %',
            current_setting('transaction_isolation') USING ERRCODE = 'invalid_transaction_state';
    END IF;
    IF NOT pgqueue_on_duty_v1('ring') THEN
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
        -- A cheap check before the lock, so that a shelf with young jobs is never locked. max() always reads the
        -- end of the index; an EXISTS read the whole shelf if there were no statistics.
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
