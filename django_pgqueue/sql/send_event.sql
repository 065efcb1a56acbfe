-- Send an event to a live job that waits for it, or will wait for it. Returns false if the job has this event already,
-- or has stopped waiting for it.
--
-- Race: the job may be on its way to sleep. Its finish locks the row of the job, as this does: if this is first, the
-- finish finds the event and makes the job due; otherwise the job waits already, and this makes it due.
CREATE FUNCTION pgqueue_send_event(job_id bigint, name text, value jsonb DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    awaited boolean;
    problem text := CASE
        WHEN pgqueue_send_event.name IS NULL OR pgqueue_send_event.name = '' THEN 'an event needs a name'
        WHEN length(pgqueue_send_event.name) > 100 THEN format('the name of an event has at most 100 characters, not %s', length(pgqueue_send_event.name))
        WHEN (SELECT count(*) FROM pgqueue_step WHERE job_id = pgqueue_send_event.job_id) >= 1000
            THEN format('job %s has 1,000 steps and events, which is the limit', pgqueue_send_event.job_id)
    END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = pgqueue_send_event.job_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: there is no live job %', pgqueue_send_event.job_id USING ERRCODE = '23Q01',
            HINT = 'It has finished, so it cannot receive the event.';
    END IF;
    INSERT INTO pgqueue_step AS step (job_id, name, kind, finished_at, result)
    VALUES (pgqueue_send_event.job_id, pgqueue_send_event.name, 'event', clock_timestamp(), pgqueue_send_event.value)
    ON CONFLICT (job_id, name) DO UPDATE SET finished_at = excluded.finished_at, result = excluded.result
        WHERE step.kind = 'event' AND step.finished_at IS NULL
    RETURNING step.wake_at IS NOT NULL INTO awaited;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE pgqueue_job_live AS job SET
        marks = job.marks | 1,
        run_after = CASE WHEN waits THEN clock_timestamp() ELSE job.run_after END,
        waiting_reason = CASE WHEN waits THEN '' ELSE job.waiting_reason END
    FROM (
        SELECT awaited AND live.current_step = pgqueue_send_event.name AND live.status IN ('pending', 'retry')
            AND live.run_after > clock_timestamp() AS waits
        FROM pgqueue_job_live AS live WHERE live.id = pgqueue_send_event.job_id
    ) AS state
    WHERE job.id = pgqueue_send_event.job_id;
    RETURN true;
END $$;
