-- Claim up to p_at_most jobs for a worker in another language, and return their ids: in the order and with the limits
-- of the claim of a worker in Python (jobs/claim.py). Jobs with a limit key pass the gate, and limited queues
-- are asked for their room. Each statement here has a new snapshot, which both need, so only READ COMMITTED is allowed.
--
-- The commit of a claim may be asynchronous, as the caller's session says. If a crash of the server loses it, the job is
-- claimed again under another random lease, and a report of the lost claim is refused.
--
-- Race: recovery may find the worker dead at this moment. Both lock its row: recovery skips it while a claim is open,
-- and the claim of a worker that was removed is refused. So no job is left to a worker that is not registered.
CREATE FUNCTION pgqueue_claim_v1(p_queues text[], p_at_most integer, p_worker bigint, p_max_attempts integer)
RETURNS bigint[] LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
<<claim>>
DECLARE
    mine record;
    paused record;
    queues text[];
    new_lease bigint := pgqueue_random_v1();
    limited record;
    rooms jsonb;
    picked bigint[];
    aside bigint[];
    gate record;
    claimed bigint[] := '{}';
    free integer := p_at_most;
    last_group text;
    claimed_queues text[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pgqueue: a claim needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    ELSIF p_at_most IS NULL OR p_at_most NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'pgqueue: claim: at_most % must be from 1 to 1000', coalesce(p_at_most::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_max_attempts IS NULL OR p_max_attempts < 1 THEN
        RAISE EXCEPTION 'pgqueue: claim: default_max_attempts % must be at least 1',
            coalesce(p_max_attempts::text, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT worker.queues, worker.exclude_queues, worker.drain, worker.last_group INTO mine
    FROM pgqueue_worker AS worker WHERE worker.id = p_worker FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: worker % is not registered', coalesce(p_worker::text, 'NULL')
            USING ERRCODE = '23Q04', HINT = 'It sent no heartbeat for too long, and its jobs were requeued. '
                'Stop what it still does for them, and register again.';
    END IF;
    SELECT coalesce(bool_or(pause.kind = 'all'), false) AS everything,
        coalesce(array_agg(pause.name) FILTER (WHERE pause.kind = 'queue'), '{}') AS queues
    INTO paused FROM pgqueue_pause AS pause WHERE pause.until IS NULL OR pause.until > clock_timestamp();
    last_group := mine.last_group;
    queues := coalesce(nullif(p_queues, '{}'), nullif(mine.queues, '{}'));
    IF queues IS NOT NULL THEN
        queues := ARRAY(SELECT wanted FROM unnest(queues) AS wanted WHERE wanted <> ALL (paused.queues));
    END IF;

    -- If all that was picked is put aside or refused, look on, in larger steps: there may be many such jobs. If others may
    -- follow, take them first, or the room of their keys would stay empty.
    FOR step IN 1..20 LOOP
        EXIT WHEN paused.everything OR mine.drain <> '';
        SELECT array_agg(CASE WHEN setting.name = '*' THEN '*' ELSE substr(setting.name, 7) END
                ORDER BY setting.name) AS names,
            array_agg(setting.concurrency ORDER BY setting.name) AS limits
        INTO limited FROM pgqueue_limit AS setting WHERE setting.name = '*' OR setting.name LIKE 'queue:%';
        rooms := CASE WHEN limited.names IS NOT NULL THEN (
            SELECT jsonb_object_agg(room.queue_name, room.room)
            FROM pgqueue_room_v1(limited.names, limited.limits) AS room) END;
        SELECT pick.picked, pick.last_group INTO picked, last_group FROM pgqueue_pick_v1(
            queues, mine.exclude_queues || paused.queues, rooms,
            CASE WHEN step = 1 THEN p_at_most WHEN claimed <> '{}' THEN free ELSE greatest(free, 500) END,
            last_group) AS pick;
        EXIT WHEN picked = '{}';
        picked := pgqueue_fitting_v1(picked);
        aside := pgqueue_put_aside_v1(picked, p_worker, new_lease, p_max_attempts);
        SELECT verdict.granted, verdict.moved, verdict.following INTO gate
        FROM (
            SELECT array_agg(job.id ORDER BY job.place) AS ids, array_agg(job.limit_key::text ORDER BY job.place) AS keys,
                array_agg(job.queue_name::text ORDER BY job.place) AS queues,
                array_agg(job.priority ORDER BY job.place) AS priorities, array_agg(job.wait_position ORDER BY job.place) AS lines
            FROM (
                SELECT live.*, array_position(picked, live.id) AS place FROM pgqueue_job_live AS live
                WHERE live.id = ANY (picked) AND live.limit_key IS NOT NULL AND live.id <> ALL (aside)
            ) AS job
        ) AS asked
        CROSS JOIN LATERAL pgqueue_gate_v1(asked.ids, asked.keys, asked.queues, asked.priorities, asked.lines) AS verdict;
        -- A job that was granted, but for which there is no place here, stays claimable, like the first of a line.
        WITH started AS (
            UPDATE pgqueue_job_live AS job SET
                status = 'running', attempts = job.attempts + 1, worker = p_worker, lease = new_lease,
                started_at = coalesce(job.started_at, clock_timestamp()), last_attempted_at = clock_timestamp(),
                deadline = clock_timestamp() + job.timeout * interval '1 second', waiting_reason = ''
            WHERE job.status IN ('pending', 'retry')
                AND job.attempts - job.forgiven_attempts < coalesce(job.max_attempts, p_max_attempts)
                AND job.id = ANY (ARRAY(
                    SELECT live.id FROM pgqueue_job_live AS live
                    WHERE live.id = ANY (picked) AND live.id <> ALL (aside)
                        AND (live.limit_key IS NULL OR live.id = ANY (gate.granted))
                    ORDER BY array_position(picked, live.id) LIMIT free))
            RETURNING job.id, job.queue_name
        )
        SELECT claimed || array_agg(started.id), array_agg(started.queue_name::text)
        INTO claimed, claimed_queues FROM started;
        IF limited.names IS NOT NULL AND claimed_queues IS NOT NULL THEN
            PERFORM pgqueue_charge_queues_v1(limited.names, claimed_queues);
        END IF;
        free := p_at_most - cardinality(claimed);
        EXIT WHEN free = 0;
        IF coalesce(gate.following, '{}') <> '{}' THEN
            PERFORM set_config('pgqueue.released', array_to_string(gate.following, ','), true);
        ELSE
            EXIT WHEN claimed <> '{}' OR aside = '{}' AND coalesce(gate.moved, 0) = 0;
        END IF;
    END LOOP;

    -- What it has claimed counts as started: recovery counts a crash for a job that takes its workers down repeatedly.
    UPDATE pgqueue_worker AS worker SET heartbeat_at = clock_timestamp(), last_group = claim.last_group, started_jobs = ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job WHERE job.status = 'running' AND job.worker = p_worker)
    WHERE worker.id = p_worker;
    RETURN claimed;
END $$;
