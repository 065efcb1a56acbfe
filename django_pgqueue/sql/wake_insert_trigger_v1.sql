-- Jobs that are due within the longest poll interval (a minute): a sleeper that polls later must be notified.
CREATE CONSTRAINT TRIGGER pgqueue_wake_insert AFTER INSERT ON pgqueue_job_live
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (
        NEW.status IN ('pending', 'retry')
        AND NEW.run_after <= clock_timestamp() + interval '1 minute'
        AND pgqueue_wake_once_v1(NEW.queue_name)
    )
    EXECUTE FUNCTION pgqueue_wake_v1();
