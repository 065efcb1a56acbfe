-- Whoever changes the timing of a schedule (code, settings, the admin, SQL), the next round computes its next tick
-- anew: the first one that is later than the change and than the last tick. This is a trigger because it must know
-- the row as it is under the lock, not as the writer has read it.
--
-- A tick that is due at the moment of the change, and that no round has fired yet, is not lost: it stays the next
-- tick. After a pause, or after a schedule came back, nothing is caught up.
CREATE FUNCTION pgqueue_schedule_changed_v1() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.since := coalesce(NEW.since, clock_timestamp());
    ELSIF OLD.paused_at IS NOT NULL OR OLD.retired_at IS NOT NULL THEN
        IF (NEW.paused_at IS NULL AND NEW.retired_at IS NULL)
            OR (OLD.cron, OLD.every, OLD.timezone) IS DISTINCT FROM (NEW.cron, NEW.every, NEW.timezone)
        THEN
            NEW.since := clock_timestamp();
            NEW.next_tick := NULL;
        END IF;
    ELSIF (OLD.cron, OLD.every, OLD.timezone) IS DISTINCT FROM (NEW.cron, NEW.every, NEW.timezone) THEN
        NEW.since := clock_timestamp();
        NEW.next_tick := CASE WHEN OLD.next_tick <= clock_timestamp() THEN OLD.next_tick END;
    END IF;
    RETURN NEW;
END $$;
