-- Not for the round's own updates: they set none of these columns.
CREATE TRIGGER pgqueue_schedule_changed
    BEFORE INSERT OR UPDATE OF cron, every, timezone, paused_at, retired_at ON pgqueue_schedule
    FOR EACH ROW EXECUTE FUNCTION pgqueue_schedule_changed_v1();
