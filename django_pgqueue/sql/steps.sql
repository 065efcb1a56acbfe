-- Send an event to a live job that waits for it, or will wait for it. Returns false if the job has this event already,
-- or has stopped waiting for it.
--
-- Race: the job may be on its way to sleep. Its finish locks the row of the job, as this does: if this is first, the
-- finish finds the event and makes the job due; otherwise the job waits already, and this makes it due.
CREATE FUNCTION pgqueue_send_event(job_id bigint, name text, value jsonb DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    is_due boolean;
    waits boolean;
    problem text := CASE
        WHEN pgqueue_send_event.name IS NULL OR pgqueue_send_event.name = '' THEN 'an event needs a name'
        WHEN length(pgqueue_send_event.name) > 100
            THEN format('the name of an event has at most 100 characters, not %s', length(pgqueue_send_event.name))
        WHEN (SELECT count(*) FROM pgqueue_step WHERE job_id = pgqueue_send_event.job_id) >= 1000
            THEN format('job %s has 1,000 steps and events, which is the limit', pgqueue_send_event.job_id)
    END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT job.current_step <> pgqueue_send_event.name OR job.status NOT IN ('pending', 'retry')
        OR job.run_after <= clock_timestamp()
    INTO is_due FROM pgqueue_job_live AS job WHERE job.id = pgqueue_send_event.job_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: there is no live job %', pgqueue_send_event.job_id USING ERRCODE = '23Q01',
            HINT = 'It has finished, so it cannot receive the event.';
    END IF;
    INSERT INTO pgqueue_step AS step (job_id, name, kind, finished_at, result)
    VALUES (pgqueue_send_event.job_id, pgqueue_send_event.name, 'event', clock_timestamp(), pgqueue_send_event.value)
    ON CONFLICT (job_id, name) DO UPDATE SET finished_at = excluded.finished_at, result = excluded.result
        WHERE step.kind = 'event' AND step.finished_at IS NULL
    RETURNING step.wake_at IS NOT NULL AND NOT is_due INTO waits;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE pgqueue_job_live AS job SET
        marks = job.marks | 1,
        run_after = CASE WHEN waits THEN clock_timestamp() ELSE job.run_after END,
        waiting_reason = CASE WHEN waits THEN '' ELSE job.waiting_reason END
    WHERE job.id = pgqueue_send_event.job_id;
    RETURN true;
END $$;

-- Record that a step of a running job is done: one durable call, under the lease. Returns 'recorded', 'lost' (the lease
-- was lost: what this attempt does no longer counts), or 'taken' (there is an event or a sleep with this name).
--
-- A job that has recorded a step gets its whole budget of attempts for the next one, so the attempts before this
-- one are forgiven. Only the first step of an attempt (p_first) writes to the row of the job. An UPDATE for each step
-- would cost more than twice as much.
--
-- Race: recovery may take the job away at the same moment. It updates the row, so it waits for the lock, and the step
-- belongs to the attempts before. If recovery came first, the lease differs. Steps that end side by side share the
-- lock. Race: two of them may both be the first. Both update, and do not first share the lock, which would be a
-- deadlock.
CREATE FUNCTION _pgqueue_record_step(
    p_job bigint, p_lease bigint, p_first boolean, p_attempt integer, p_name text, p_seconds double precision,
    p_inputs bigint, p_result jsonb
) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF p_first THEN
        UPDATE pgqueue_job_live AS job SET
            current_step = p_name, marks = job.marks | 1,
            forgiven_attempts = greatest(job.forgiven_attempts, job.attempts - 1)
        WHERE job.id = p_job AND job.lease = p_lease;
    ELSE
        PERFORM FROM pgqueue_job_live AS job WHERE job.id = p_job AND job.lease = p_lease FOR SHARE;
    END IF;
    IF NOT FOUND THEN
        RETURN 'lost';
    END IF;
    INSERT INTO pgqueue_step (job_id, name, attempt, seconds, finished_at, inputs, result)
    VALUES (p_job, p_name, p_attempt, p_seconds, clock_timestamp(), p_inputs, p_result)
    ON CONFLICT (job_id, name) DO NOTHING;
    RETURN CASE WHEN FOUND THEN 'recorded' ELSE 'taken' END;
END $$;

-- A running job reaches a sleep, or the place where it waits for a signal. Returns whether it still holds its lease,
-- and if so, the kind of the step (timeout: it ended without the event), whether the wait has ended, what the event
-- brought, and how many seconds are left. What has timed out stays so: an event that comes later does not change the
-- past.
CREATE FUNCTION _pgqueue_wait(
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

-- What history keeps of the steps of a job: of a done job their names and times, of others also their results, because
-- a retry goes on from there.
--
-- Race: an event may be committed while the statement that calls this waits for the row of the job. A stable function
-- would not see it, because it would look with the snapshot of that statement, so this is volatile.
CREATE FUNCTION _pgqueue_fold_steps(p_job bigint, p_outcome text) RETURNS jsonb
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT jsonb_agg(
        CASE WHEN p_outcome = 'done' THEN to_jsonb(step) - 'job_id' - 'inputs' - 'result'
            ELSE to_jsonb(step) - 'job_id' END
        ORDER BY step.finished_at, step.name)
    FROM pgqueue_step AS step WHERE step.job_id = p_job
$$;
