-- A running job reaches a sleep, or the place where it waits for a signal. Returns whether it still holds its lease, and
-- if so, the kind of the step (timeout: it ended without the event), whether the wait is over, what the event brought, and
-- how many seconds are left. What has timed out stays so: an event that comes later does not change the past.
CREATE FUNCTION pgqueue_wait_v1(
    p_job bigint, p_lease bigint, p_name text, p_kind text, p_seconds double precision,
    OUT held boolean, OUT kind text, OUT ready boolean, OUT result jsonb, OUT remaining double precision
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    now timestamptz;
    step pgqueue_step;
BEGIN
    -- Race: an event may come now. It locks the row of the job first, too (pgqueue_send_event).
    UPDATE pgqueue_job_live AS job SET current_step = p_name, marks = job.marks | 1
    WHERE job.id = p_job AND job.lease = p_lease;
    held := FOUND;
    IF NOT held THEN
        RETURN;
    END IF;
    now := clock_timestamp();
    INSERT INTO pgqueue_step (job_id, name, kind, wake_at)
    VALUES (p_job, p_name, p_kind, now + p_seconds * interval '1 second')
    ON CONFLICT (job_id, name) DO UPDATE
        -- The event came before the job waited for it, so there is no time yet.
        SET wake_at = coalesce(pgqueue_step.wake_at, excluded.wake_at)
        WHERE pgqueue_step.wake_at IS NULL AND pgqueue_step.kind = 'event';
    SELECT * INTO STRICT step FROM pgqueue_step WHERE job_id = p_job AND name = p_name;
    IF step.finished_at IS NULL AND step.wake_at <= now THEN
        UPDATE pgqueue_step SET finished_at = now,
            kind = CASE WHEN step.kind = 'event' THEN 'timeout' ELSE step.kind END
        WHERE job_id = p_job AND name = p_name
        RETURNING * INTO step;
    END IF;
    kind := step.kind;
    ready := step.finished_at IS NOT NULL;
    result := step.result;
    remaining := date_part('epoch', step.wake_at - now);
END $$;
