-- Return whether this transaction must still attach its new edges at its end: true once, until that has happened
-- (attach_v1.sql). A rollback to a savepoint forgets it, together with the edges.
CREATE FUNCTION pgqueue_attach_once_v1() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('pgqueue.attach_once', true) = 'queued' THEN
        RETURN false;
    END IF;
    PERFORM set_config('pgqueue.attach_once', 'queued', true);
    RETURN true;
END $$;
