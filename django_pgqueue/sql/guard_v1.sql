-- Refuse changes of a job's state that are not legal transitions, for instance by a manual UPDATE or a bug. The
-- SQLSTATE is 23514, so that Django raises IntegrityError. This does not check DELETE and INSERT.
CREATE FUNCTION pgqueue_guard_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id <> OLD.id OR OLD.shelf <> 0 OR NEW.shelf <> 0 OR NOT (
        OLD.status = NEW.status
        OR OLD.status IN ('pending', 'retry') AND NEW.status IN ('pending', 'retry', 'running', 'blocked')
        OR OLD.status = 'running' AND NEW.status IN ('pending', 'retry', 'blocked')
        OR OLD.status = 'blocked' AND NEW.status IN ('pending', 'retry')
    ) THEN
        RAISE EXCEPTION 'pgqueue: job % cannot change from % (shelf %) to % (shelf %)',
            OLD.id, OLD.status, OLD.shelf, NEW.status, NEW.shelf
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pgqueue_job_transition',
                TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA,
                HINT = 'Use cancel() or retry(), in SQL pgqueue_cancel(id) or pgqueue_retry(id).';
    END IF;
    RETURN NEW;
END $$;
