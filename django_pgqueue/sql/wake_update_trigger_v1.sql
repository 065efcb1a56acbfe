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
        AND pgqueue_wake_once_v1(NEW.queue_name)
    )
    EXECUTE FUNCTION pgqueue_wake_v1();
