-- Claim due jobs for a worker in another language: SELECT * FROM pgqueue_claim('{mail}', 1, 77).
--
-- The order and the limits are as in the claim of a worker in Python (jobs/claim.py). Jobs with a limit key pass the
-- gate, and limited queues are asked for their room. Each statement here has a new snapshot, which both need, so only
-- READ COMMITTED is allowed.
--
-- The commit of a claim may be asynchronous, as the caller's session says. If a crash of the server loses it, the job
-- is claimed again under another random lease, and a report of the lost claim is refused.
--
-- Race: recovery may find the worker dead at this moment. Both lock its row: recovery skips it while a claim is open,
-- and the claim of a worker that was removed is refused, so no job is left to a worker that is not registered.
CREATE FUNCTION pgqueue_claim(
    queues text[], at_most integer, worker bigint, default_max_attempts integer DEFAULT 5,
    OUT id bigint, OUT lease bigint, OUT task_path text, OUT args jsonb, OUT kwargs jsonb, OUT metadata jsonb,
    OUT queue_name text, OUT priority integer, OUT attempts integer, OUT max_attempts integer,
    OUT attempts_left integer, OUT timeout integer, OUT deadline timestamptz, OUT crash_count integer,
    OUT enqueued_at timestamptz, OUT context jsonb, OUT tenant text
) RETURNS SETOF record LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    mine record;
    paused record;
    limited record;
    rooms jsonb;
    picked bigint[];
    turn text;  -- the group whose turn it was last
    aside record;
    gate record;
    new_lease bigint := _pgqueue_random();
    wanted text[];
    claimed bigint[] := '{}';
    claimed_queues text[];
    free integer := at_most;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pgqueue: a claim needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    ELSIF at_most IS NULL OR at_most NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'pgqueue: claim: at_most % must be from 1 to 1000', coalesce(at_most::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF default_max_attempts IS NULL OR default_max_attempts < 1 THEN
        RAISE EXCEPTION 'pgqueue: claim: default_max_attempts % must be at least 1',
            coalesce(default_max_attempts::text, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT known.queues, known.exclude_queues, known.drain, known.last_group INTO mine
    FROM pgqueue_worker AS known WHERE known.id = pgqueue_claim.worker FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: worker % is not registered', coalesce(worker::text, 'NULL')
            USING ERRCODE = '23Q04', HINT = 'It sent no heartbeat for too long, and its jobs were requeued. '
                'Stop what it still does for them, and register again.';
    END IF;
    turn := mine.last_group;
    SELECT coalesce(bool_or(pause.kind = 'all'), false) AS everything,
        coalesce(array_agg(pause.name) FILTER (WHERE pause.kind = 'queue'), '{}') AS queues
    INTO paused FROM pgqueue_pause AS pause WHERE pause.until IS NULL OR pause.until > clock_timestamp();
    wanted := coalesce(nullif(queues, '{}'), nullif(mine.queues, '{}'));
    IF wanted IS NOT NULL THEN
        wanted := ARRAY(SELECT queue FROM unnest(wanted) AS queue WHERE queue <> ALL (paused.queues));
    END IF;

    -- If all that was picked is put aside or refused, look on, in larger steps: there may be many such jobs. If others
    -- may follow, take them first, or the room of their keys would stay empty.
    FOR step IN 1..20 LOOP
        EXIT WHEN paused.everything OR mine.drain <> '';
        SELECT array_agg(CASE WHEN setting.name = '*' THEN '*' ELSE substr(setting.name, 7) END
                ORDER BY setting.name) AS names,
            array_agg(setting.concurrency ORDER BY setting.name) AS limits
        INTO limited FROM pgqueue_limit AS setting WHERE setting.name = '*' OR setting.name LIKE 'queue:%';
        rooms := (
            SELECT jsonb_object_agg(room.queue_name, room.room)
            FROM _pgqueue_room(limited.names, limited.limits) AS room);
        SELECT pick.picked, pick.last_group INTO picked, turn FROM _pgqueue_pick(
            wanted, mine.exclude_queues || paused.queues, rooms,
            CASE WHEN step = 1 THEN at_most WHEN claimed <> '{}' THEN free ELSE greatest(free, 500) END, turn) AS pick;
        EXIT WHEN picked = '{}';

        -- Report jobs that must not be handed out: they have expired, a pause holds them, or no attempt is left (a
        -- worker reported a retry too many). Left where they are, they would stay in front of the others, and of the
        -- wait queue of their limit key.
        SELECT coalesce(array_agg(job.id), '{}') AS ids, array_agg(verdict.outcome) AS outcomes,
            array_agg(CASE verdict.outcome
                WHEN 'cancelled' THEN format('expired at %s', job.expires_at)
                WHEN 'paused' THEN pause.reason
                ELSE 'no attempts are left' END) AS reasons
        INTO aside
        FROM pgqueue_job_live AS job
        LEFT JOIN _pgqueue_put_aside(picked) AS pause ON pause.id = job.id
        CROSS JOIN LATERAL (SELECT CASE
            WHEN job.expires_at <= clock_timestamp() THEN 'cancelled'
            WHEN pause.id IS NOT NULL THEN 'paused'
            WHEN job.attempts - job.forgiven_attempts >= coalesce(job.max_attempts, default_max_attempts)
                THEN 'failed'
        END AS outcome) AS verdict
        WHERE job.id = ANY (picked) AND verdict.outcome IS NOT NULL;
        IF aside.ids <> '{}' THEN
            -- The report takes back the attempt, except that of a job that fails here, which is not counted.
            UPDATE pgqueue_job_live AS job SET
                status = 'running', attempts = job.attempts + (given.outcome <> 'failed')::integer,
                worker = pgqueue_claim.worker, lease = new_lease
            FROM unnest(aside.ids, aside.outcomes) AS given (id, outcome)
            WHERE job.id = ANY (aside.ids) AND job.id = given.id;
            PERFORM _pgqueue_finish(
                aside.ids, array_fill(new_lease, ARRAY[cardinality(aside.ids)]), aside.outcomes, NULL, NULL, NULL,
                NULL, NULL, NULL, aside.reasons, 20);
        END IF;

        SELECT verdict.granted, verdict.moved, verdict.following INTO gate
        FROM (
            SELECT array_agg(job.id ORDER BY job.place) AS ids,
                array_agg(job.limit_key::text ORDER BY job.place) AS keys,
                array_agg(job.queue_name::text ORDER BY job.place) AS queues,
                array_agg(job.priority ORDER BY job.place) AS priorities,
                array_agg(job.wait_position ORDER BY job.place) AS lines
            FROM (
                SELECT live.*, array_position(picked, live.id) AS place FROM pgqueue_job_live AS live
                WHERE live.id = ANY (picked) AND live.limit_key IS NOT NULL AND live.id <> ALL (aside.ids)
            ) AS job
        ) AS asked
        CROSS JOIN LATERAL _pgqueue_gate(asked.ids, asked.keys, asked.queues, asked.priorities, asked.lines) AS verdict;
        -- A job that was granted, but for which there is no place here, stays claimable, like the first of a line.
        WITH started AS (
            UPDATE pgqueue_job_live AS job SET
                status = 'running', attempts = job.attempts + 1, worker = pgqueue_claim.worker, lease = new_lease,
                started_at = coalesce(job.started_at, clock_timestamp()), last_attempted_at = clock_timestamp(),
                deadline = clock_timestamp() + job.timeout * interval '1 second', waiting_reason = ''
            WHERE job.status IN ('pending', 'retry')
                AND job.attempts - job.forgiven_attempts < coalesce(job.max_attempts, default_max_attempts)
                AND job.id = ANY (ARRAY(
                    SELECT live.id FROM pgqueue_job_live AS live
                    WHERE live.id = ANY (picked) AND live.id <> ALL (aside.ids)
                        AND (live.limit_key IS NULL OR live.id = ANY (gate.granted))
                    ORDER BY array_position(picked, live.id) LIMIT free))
            RETURNING job.id, job.queue_name
        )
        SELECT claimed || array_agg(started.id), array_agg(started.queue_name::text)
        INTO claimed, claimed_queues FROM started;
        IF rooms IS NOT NULL THEN
            PERFORM _pgqueue_charge(ARRAY(
                SELECT CASE WHEN room = '*' THEN '*' ELSE 'queue:' || room END
                FROM unnest(limited.names) AS room JOIN unnest(claimed_queues) AS started ON room IN ('*', started)));
        END IF;
        free := at_most - cardinality(claimed);
        EXIT WHEN free = 0;
        IF coalesce(gate.following, '{}') <> '{}' THEN
            PERFORM set_config('pgqueue.released', array_to_string(gate.following, ','), true);
        ELSE
            EXIT WHEN claimed <> '{}' OR aside.ids = '{}' AND coalesce(gate.moved, 0) = 0;
        END IF;
    END LOOP;

    -- What it has claimed counts as started: recovery counts a crash for a job that takes its workers down repeatedly.
    UPDATE pgqueue_worker AS known SET heartbeat_at = clock_timestamp(), last_group = turn,
        started_jobs = ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND job.worker = pgqueue_claim.worker)
    WHERE known.id = pgqueue_claim.worker;
    RETURN QUERY
        SELECT job.id, job.lease, job.task_path::text, job.args, job.kwargs, job.metadata, job.queue_name::text,
            job.priority::integer, job.attempts, coalesce(job.max_attempts, default_max_attempts),
            coalesce(job.max_attempts, default_max_attempts) - job.attempts + job.forgiven_attempts,
            job.timeout, job.deadline, job.crash_count::integer, job.enqueued_at, job.context,
            job.tenant::text
        FROM pgqueue_job_live AS job WHERE job.id = ANY (claimed)
        ORDER BY job.priority DESC, job.run_after, job.id;
END $$;

-- Lock and return the jobs that a claim by SQL looks at: the highest priorities first, the queues of one
-- priority in random order, and each range by time. Rows that others have locked are skipped.
--
-- A worker in Python keeps a mark for each range. This has none: _pgqueue_first_due reads each range from its start,
-- and the pick continues at the job that it has found, so that the entries of deleted jobs are passed only once. The
-- upper bound is a variable: with clock_timestamp(), it would be no condition of the index.
--
-- Of the jobs with a group, one of each is taken in turn. p_after is the group whose turn it was last.
--
-- It ends with the job that makes it larger than 32 MB of JSON (jobs/claim.py). A worker cannot know how large the next
-- jobs are, and many may be as large as a job is allowed to be.
CREATE FUNCTION _pgqueue_pick(
    p_queues text[],  -- NULL: all except p_except
    p_except text[],
    p_rooms jsonb,    -- how many jobs may start in the limited queues; NULL: there are none
    p_limit integer,
    p_after text,
    OUT picked bigint[], OUT last_group text
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    range record;
    now timestamptz := clock_timestamp();
    -- A finish in the same transaction has released these (_pgqueue_release). They keep their place: they come first.
    released bigint[] := coalesce(string_to_array(nullif(current_setting('pgqueue.released', true), ''), ','), '{}');
    free integer := least(p_limit, (p_rooms ->> '*')::integer);
    room integer;
    found bigint[];
BEGIN
    picked := '{}';
    last_group := p_after;
    FOR range IN
        SELECT first.* FROM _pgqueue_first_due(p_queues, p_except, '{}', '{}', '{}', '{}', '{}') AS first
        WHERE first.run_after <= now ORDER BY first.priority DESC, random()
    LOOP
        room := least(free, (p_rooms ->> range.queue_name)::integer);
        CONTINUE WHEN room < 1;
        found := '{}';
        IF released <> '{}' THEN
            -- The status is a calculation, which hides the predicate of pgqueue_job_claim: without statistics,
            -- the planner would read that whole index together with these ids.
            found := ARRAY(
                SELECT job.id FROM pgqueue_job_live AS job
                WHERE job.id = ANY (released) AND job.status || '' IN ('pending', 'retry')
                    AND job.queue_name = range.queue_name AND job.priority = range.priority
                    AND job.is_grouped = (range.group_key IS NOT NULL) AND job.id <> ALL (picked)
                ORDER BY job.wait_position LIMIT room FOR NO KEY UPDATE SKIP LOCKED);
        END IF;
        IF range.group_key IS NULL THEN
            found := found || ARRAY(
                SELECT job.id FROM pgqueue_job_live AS job
                WHERE job.status IN ('pending', 'retry') AND job.queue_name = range.queue_name
                    AND NOT job.is_grouped AND job.priority = range.priority AND job.run_after <= now
                    AND (job.run_after, job.id) >= (range.run_after, range.id) AND job.id <> ALL (found)
                ORDER BY job.run_after, job.id LIMIT room - cardinality(found) FOR NO KEY UPDATE SKIP LOCKED);
        ELSIF room > cardinality(found) THEN
            SELECT found || turn.picked, turn.last_group INTO found, last_group
            FROM _pgqueue_pick_groups(
                range.queue_name, range.priority, last_group, room - cardinality(found), now) AS turn;
        END IF;
        picked := picked || found;
        free := free - cardinality(found);
        IF p_rooms ? range.queue_name THEN
            p_rooms := p_rooms || jsonb_build_object(range.queue_name, room - cardinality(found));
        END IF;
        EXIT WHEN free < 1;
    END LOOP;
    picked := ARRAY(
        SELECT sized.id FROM (
            SELECT job.id, job.place, sum(size.of_it) OVER (ORDER BY job.place) - size.of_it AS before
            FROM (
                SELECT live.*, array_position(picked, live.id) AS place FROM pgqueue_job_live AS live
                WHERE live.id = ANY (picked)
            ) AS job
            CROSS JOIN LATERAL (
                SELECT sum(CASE WHEN pg_column_compression(part) IS NULL THEN pg_column_size(part)
                    ELSE octet_length(part::text) END) AS of_it
                FROM (VALUES (job.args), (job.kwargs), (job.metadata)) AS parts (part)
            ) AS size
        ) AS sized
        WHERE sized.before < 32000000 ORDER BY sized.place);
END $$;

-- Lock and return the jobs of a (queue, priority) that a claim by SQL looks at, one of each group in turn. The turn
-- begins after the group p_after, and ends with the group last_group. Rows that others have locked are skipped.
CREATE FUNCTION _pgqueue_pick_groups(
    p_queue_name text, p_priority integer, p_after text, p_limit integer, p_now timestamptz,
    OUT picked bigint[], OUT last_group text
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    here text := p_after;
    found_any boolean := true;  -- since the first group
    job_id bigint;
BEGIN
    picked := '{}';
    last_group := p_after;
    WHILE cardinality(picked) < p_limit LOOP
        SELECT job.group_key INTO here FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') AND job.group_key > here
            AND job.queue_name = p_queue_name AND job.priority = p_priority
        ORDER BY job.group_key LIMIT 1;
        IF NOT FOUND THEN
            EXIT WHEN NOT found_any;
            here := '';
            found_any := false;
            CONTINUE;
        END IF;
        SELECT job.id INTO job_id FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') AND job.group_key = here AND job.queue_name = p_queue_name
            AND job.priority = p_priority AND job.run_after <= p_now AND job.id <> ALL (picked)
        ORDER BY job.run_after, job.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            picked := picked || job_id;
            last_group := here;
            found_any := true;
        END IF;
    END LOOP;
END $$;
