-- Refuse a change of a job's state that is not a legal transition, for instance by a manual UPDATE or a bug: the
-- condition of the trigger recognizes it (triggers.sql). The SQLSTATE is 23514, so that Django raises
-- IntegrityError.
CREATE FUNCTION _pgqueue_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'pgqueue: job % cannot change from % (shelf %) to % (shelf %)',
        OLD.id, OLD.status, OLD.shelf, NEW.status, NEW.shelf
        USING ERRCODE = 'check_violation', CONSTRAINT = 'pgqueue_job_transition',
            TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA,
            HINT = 'Use cancel() or retry(), in SQL pgqueue_cancel(ARRAY[id]) or pgqueue_retry(ARRAY[id]).';
END $$;
