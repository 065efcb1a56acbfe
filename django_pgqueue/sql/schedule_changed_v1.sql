-- Whoever changes the timing of a schedule (code, settings, the admin, SQL), the next round computes its next run
-- anew: the first one that is later than the change and than the last run. This is a trigger because it must know
-- the row as it is under the lock, not as the writer has read it.
--
-- Runs that are due at the moment of the change, and that no round has fired yet, are not lost: the old timing is
-- noted in owed, with the time in which it was true, and the next round computes its runs, too. After a pause, or
-- after a schedule came back, nothing is caught up.
--
-- Race: a round may be firing the schedule at this moment. The UPDATE waits for it before this is called, so OLD is the
-- row that the round has left, and the clock is read after that.
CREATE FUNCTION pgqueue_schedule_changed_v1() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.since := coalesce(NEW.since, clock_timestamp());
    ELSIF OLD.paused_at IS NOT NULL OR OLD.retired_at IS NOT NULL THEN
        IF (NEW.paused_at IS NULL AND NEW.retired_at IS NULL)
            OR (OLD.cron, OLD.every, OLD.timezone) IS DISTINCT FROM (NEW.cron, NEW.every, NEW.timezone)
        THEN
            NEW.since := clock_timestamp();
            NEW.next_run_at := NULL;
            NEW.owed := NULL;
        END IF;
    ELSIF (OLD.cron, OLD.every, OLD.timezone) IS DISTINCT FROM (NEW.cron, NEW.every, NEW.timezone) THEN
        NEW.since := clock_timestamp();
        IF OLD.next_run_at > NEW.since THEN
            NEW.next_run_at := NULL;  -- nothing is owed
        ELSE
            NEW.next_run_at := OLD.next_run_at;
            NEW.owed := coalesce(OLD.owed, '[]') || jsonb_build_array(jsonb_build_object(
                'cron', OLD.cron,
                'every', (extract(epoch FROM OLD.every) * 1000000)::bigint,
                'timezone', OLD.timezone,
                'since', (extract(epoch FROM OLD.since) * 1000000)::bigint,
                'until', (extract(epoch FROM NEW.since) * 1000000)::bigint));
        END IF;
    END IF;
    IF NEW.paused_at IS NULL AND NEW.retired_at IS NULL AND (TG_OP = 'INSERT' OR NEW.since IS DISTINCT FROM OLD.since)
        AND current_setting('pgqueue.notify', true) IS DISTINCT FROM 'off'
    THEN
        PERFORM pg_notify(pgqueue_channel_v1() || '_schedules', '');  -- the supervisors look at once
    END IF;
    RETURN NEW;
END $$;
