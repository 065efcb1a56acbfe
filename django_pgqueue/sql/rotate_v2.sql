-- Do one step of maintenance for the ring of history (rotate_v1.sql), and note which jobs are gone if that empties a shelf.
--
-- Race: a finish may commit a job into the shelf after the look. It is young, and so the shelf is not emptied. Another
-- rotation may have locked the shelf: the lock of all rotations comes first, as in v1, and nobody waits for long.
CREATE FUNCTION pgqueue_rotate_v2() RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    next_shelf integer;
    first_id bigint;
    last_id bigint;
    did text;
BEGIN
    IF NOT pgqueue_on_duty_v1('ring') THEN
        RETURN 'busy';
    END IF;
    SELECT ring.current % 8 + 1 INTO STRICT next_shelf FROM pgqueue_ring AS ring;
    EXECUTE format('SELECT min(id), max(id) FROM pgqueue_job_past_%s', next_shelf) INTO first_id, last_id;
    did := pgqueue_rotate_v1();
    IF did = 'emptied shelf ' || next_shelf THEN
        PERFORM pgqueue_note_gone_v1(first_id, last_id);
    END IF;
    RETURN did;
EXCEPTION WHEN lock_not_available THEN
    RETURN 'gave way to a reader of shelf ' || next_shelf;
END $$;
