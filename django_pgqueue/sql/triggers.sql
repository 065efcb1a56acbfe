-- Refuse a change of a job's state that is not a legal transition, for instance by a manual UPDATE or a bug. The
-- SQLSTATE is 23514, so that Django raises IntegrityError.
CREATE FUNCTION _pgqueue_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'pgqueue: job % cannot change from % (shelf %) to % (shelf %)',
        OLD.id, OLD.status, OLD.shelf, NEW.status, NEW.shelf
        USING ERRCODE = 'check_violation', CONSTRAINT = 'pgqueue_job_transition',
            TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA,
            HINT = 'Use cancel() or retry(), in SQL pgqueue_cancel(ARRAY[id]) or pgqueue_retry(ARRAY[id]).';
END $$;

-- The changes that are no legal transition. The condition is here and not in the function, so that a legal change,
-- such as each claim, does not call a function. This does not check DELETE and INSERT.
CREATE TRIGGER pgqueue_guard BEFORE UPDATE ON pgqueue_job FOR EACH ROW
    WHEN (
        NEW.id <> OLD.id OR OLD.shelf <> 0 OR NEW.shelf <> 0 OR NOT (
            OLD.status = NEW.status
            OR OLD.status IN ('pending', 'retry') AND NEW.status IN ('pending', 'retry', 'running', 'blocked')
            OR OLD.status = 'running' AND NEW.status IN ('pending', 'retry', 'blocked')
            OR OLD.status = 'blocked' AND NEW.status IN ('pending', 'retry')
        )
    )
    EXECUTE FUNCTION _pgqueue_guard();

-- Jobs that are due within the longest poll interval (a minute): a sleeper that polls later must be notified.
CREATE CONSTRAINT TRIGGER pgqueue_wake_insert AFTER INSERT ON pgqueue_job_live
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (
        NEW.status IN ('pending', 'retry')
        AND NEW.run_after <= clock_timestamp() + interval '1 minute'
        AND _pgqueue_wake_once(NEW.queue_name)
    )
    EXECUTE FUNCTION _pgqueue_wake();

-- A job that becomes claimable, becomes due earlier, or moves to another queue.
CREATE CONSTRAINT TRIGGER pgqueue_wake_update AFTER UPDATE ON pgqueue_job_live
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (
        NEW.status IN ('pending', 'retry')
        AND NEW.run_after <= clock_timestamp() + interval '1 minute'
        AND (
            OLD.status NOT IN ('pending', 'retry')
            OR OLD.run_after > NEW.run_after
            OR OLD.queue_name <> NEW.queue_name
        )
        AND _pgqueue_wake_once(NEW.queue_name)
    )
    EXECUTE FUNCTION _pgqueue_wake();

-- Not for the round's own updates: they set none of these columns.
CREATE TRIGGER pgqueue_schedule_changed
    BEFORE INSERT OR UPDATE OF cron, every, timezone, paused_at, retired_at ON pgqueue_schedule
    FOR EACH ROW EXECUTE FUNCTION _pgqueue_schedule_changed();

-- At the end of a transaction that has enqueued something after other jobs or batches, once: a setting of the
-- transaction remembers that the first edge has queued it. A rollback to a savepoint forgets that, together with the
-- edges.
CREATE CONSTRAINT TRIGGER pgqueue_attach AFTER INSERT ON pgqueue_edge
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (
        CASE WHEN current_setting('pgqueue.attach_once', true) = 'queued' THEN false
            ELSE set_config('pgqueue.attach_once', 'queued', true) = 'queued' END
    )
    EXECUTE FUNCTION _pgqueue_attach();

-- Refuse a new job of a role that may only enqueue if its arguments and metadata are larger than the server allows,
-- whatever limit the caller has given: JSON without spaces is what Python measures, and this has some, so a job of the
-- full size that Python accepts may take a little more here.
CREATE FUNCTION _pgqueue_check_size() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    allowed integer := coalesce((SELECT ring.max_json_bytes FROM pgqueue_ring AS ring), 1048576);
    bytes integer := octet_length(NEW.args::text || NEW.kwargs::text || NEW.metadata::text);
BEGIN
    IF bytes > allowed + allowed / 2 THEN
        RAISE EXCEPTION
            'pgqueue: the arguments take % bytes as JSON, but the limit is %: store the data and pass its key',
            bytes, allowed USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN NEW;
END $$;

-- Only jobs of roles that may only enqueue carry a role (_pgqueue_enqueue_only), and only new ones have no attempts.
-- The condition is here and not in the function, so that any other job does not call a function.
CREATE TRIGGER pgqueue_check_size BEFORE INSERT ON pgqueue_job_live FOR EACH ROW
    WHEN (NEW.attempts = 0 AND NEW.context ? 'role')
    EXECUTE FUNCTION _pgqueue_check_size();
