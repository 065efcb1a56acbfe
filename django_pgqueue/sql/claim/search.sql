-- Return the ranges that a worker should read, with the first claimable job of every (queue, priority), of jobs without
-- a group and of those with one. For ranges that the worker knows, this is the first job above the mark, or the first
-- few of those with a group; the gaps between them are searched from the start, so no probe reads the dead index
-- entries of a known range, and without known ranges this is a rescan from the start. Jobs that are not due yet are
-- returned, too: the worker sleeps until they are.
--
-- Jobs with a group are claimed group by group (jobs/claim.py). Read by time, they show which groups have work.
--
-- The plans are fixed: with custom plans, each of thousands of short probes would be planned anew, and a sort would
-- read all jobs of a queue for the few that are wanted.
CREATE FUNCTION _pgqueue_first_due(
    p_queues text[],                     -- in which gaps are searched; NULL: every queue except those in p_except
    p_except text[],
    p_known_queues text[], p_known_grouped boolean[], p_known_priorities integer[],
    p_marks timestamptz[], p_mark_ids bigint[],
    p_arrivals integer DEFAULT 1         -- how many jobs with a group above each mark
) RETURNS TABLE (queue_name text, priority integer, run_after timestamptz, id bigint, group_key text, is_known boolean)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_sort = off SET enable_incremental_sort = off AS $$
DECLARE
    known record;
    here text := '';    -- the queue that the search has reached
    searched boolean;   -- whether its gaps are searched
BEGIN
    FOR known IN
        SELECT edge.*, lag(edge.level) OVER (PARTITION BY edge.name, edge.is_grouped ORDER BY edge.level DESC) AS below
        FROM (
            SELECT range.queue_name AS name, range.is_grouped, range.priority AS level, range.mark, range.mark_id
            FROM unnest(p_known_queues, p_known_grouped, p_known_priorities, p_marks, p_mark_ids)
                AS range (queue_name, is_grouped, priority, mark, mark_id)
            UNION ALL
            SELECT queue.name, side.is_grouped, side.level, NULL, NULL
            FROM (SELECT unnest(p_queues) UNION SELECT unnest(p_known_queues)) AS queue (name)
            CROSS JOIN (VALUES (false, 101), (false, -101), (true, 101), (true, -101)) AS side (is_grouped, level)
        ) AS edge
        ORDER BY edge.name, edge.is_grouped, edge.level DESC
    LOOP
        IF known.below IS NOT NULL AND searched THEN
            RETURN QUERY SELECT *, false
                FROM _pgqueue_first_of_priorities(here, known.is_grouped, known.below, known.level);
        ELSIF known.below IS NULL AND NOT known.is_grouped THEN
            IF p_queues IS NULL THEN
                RETURN QUERY SELECT *, false FROM _pgqueue_first_of_queues(here, known.name, p_except);
            END IF;
            here := known.name;
            searched := p_queues IS NULL OR here = ANY (p_queues);
        END IF;
        CONTINUE WHEN known.mark_id IS NULL;
        RETURN QUERY SELECT known.name, known.level, job.run_after, job.id, job.group_key::text, true
            FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.queue_name = known.name
                AND job.is_grouped = known.is_grouped AND job.priority = known.level
                AND (job.run_after, job.id) > (known.mark, known.mark_id)
            ORDER BY job.run_after, job.id LIMIT CASE WHEN known.is_grouped THEN p_arrivals ELSE 1 END;
    END LOOP;
    IF p_queues IS NULL THEN
        RETURN QUERY SELECT *, false FROM _pgqueue_first_of_queues(here, NULL, p_except);
    END IF;
END $$;

-- Return the first claimable job of each (queue, with or without a group, priority) of the queues between two names
-- (exclusive; NULL: to the end).
--
-- Each step reads some entries of the index: few where a queue has many jobs, in which the search then jumps from
-- priority to priority, and more where most of them belong to new queues or priorities.
CREATE FUNCTION _pgqueue_first_of_queues(p_after text, p_before text, p_except text[])
RETURNS TABLE (queue_name text, priority integer, run_after timestamptz, id bigint, group_key text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    most integer := 16;
    read integer := most;
    new integer := 0;
    entries refcursor;
    job record;
    grouped boolean;  -- whether the last one has a group
    wanted boolean;   -- whether its queue is
BEGIN
    WHILE read = most LOOP
        most := CASE WHEN 2 * new > most THEN least(512, 2 * most) ELSE 16 END;
        read := 0;
        new := 0;
        -- Two statements instead of one with an OR: only plain bounds can end an index scan.
        IF p_before IS NULL THEN
            OPEN entries FOR
                SELECT live.queue_name::text, live.is_grouped, live.priority::integer, live.run_after, live.id,
                    live.group_key::text
                FROM pgqueue_job_live AS live
                WHERE live.status IN ('pending', 'retry') AND live.queue_name > p_after
                ORDER BY live.queue_name, live.is_grouped, live.priority DESC, live.run_after, live.id LIMIT most;
        ELSE
            OPEN entries FOR
                SELECT live.queue_name::text, live.is_grouped, live.priority::integer, live.run_after, live.id,
                    live.group_key::text
                FROM pgqueue_job_live AS live
                WHERE live.status IN ('pending', 'retry')
                    AND live.queue_name > p_after AND live.queue_name < p_before
                ORDER BY live.queue_name, live.is_grouped, live.priority DESC, live.run_after, live.id LIMIT most;
        END IF;
        LOOP
            FETCH entries INTO job;
            EXIT WHEN NOT FOUND;
            read := read + 1;
            IF queue_name IS DISTINCT FROM job.queue_name THEN
                wanted := job.queue_name <> ALL (p_except);
            ELSE
                CONTINUE WHEN priority = job.priority AND grouped = job.is_grouped;
            END IF;
            new := new + 1;
            grouped := job.is_grouped;
            queue_name := job.queue_name;
            priority := job.priority;
            run_after := job.run_after;
            id := job.id;
            group_key := job.group_key;
            IF wanted THEN
                RETURN NEXT;
            END IF;
        END LOOP;
        CLOSE entries;
        CONTINUE WHEN read < most;
        p_after := queue_name;
        IF wanted THEN  -- it may have more
            RETURN QUERY SELECT * FROM _pgqueue_first_of_priorities(p_after, grouped, priority, -101);
            IF NOT grouped THEN
                RETURN QUERY SELECT * FROM _pgqueue_first_of_priorities(p_after, true, 101, -101);
            END IF;
        END IF;
    END LOOP;
END $$;

-- Return the first claimable job of each priority of a queue, for the priorities between two bounds (exclusive): of the
-- jobs without a group, or of those with one.
--
-- Each step reads some entries of the index: few where a priority has many jobs, which the next step jumps over, and
-- more where most of them belong to new priorities.
CREATE FUNCTION _pgqueue_first_of_priorities(p_queue_name text, p_grouped boolean, p_below integer, p_above integer)
RETURNS TABLE (queue_name text, priority integer, run_after timestamptz, id bigint, group_key text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    most integer := 16;
    level integer;
    read integer := most;
    new integer := 0;
BEGIN
    queue_name := p_queue_name;
    priority := p_below;
    WHILE read = most LOOP
        most := CASE WHEN 2 * new > most THEN least(512, 2 * most) ELSE 16 END;
        read := 0;
        new := 0;
        FOR level, run_after, id, group_key IN
            SELECT job.priority, job.run_after, job.id, job.group_key FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.queue_name = p_queue_name
                AND job.is_grouped = p_grouped AND job.priority < p_below AND job.priority > p_above
            ORDER BY job.priority DESC, job.run_after, job.id LIMIT most
        LOOP
            read := read + 1;
            IF level < priority THEN
                new := new + 1;
                priority := level;
                RETURN NEXT;
            END IF;
        END LOOP;
        p_below := priority;
    END LOOP;
END $$;

-- Return the queues that have jobs of a kind: 'claimable', 'retry' or 'blocked'. This takes one probe of the index for
-- each queue. The index of the claim also has retries, among many others; to search for them there would take long.
CREATE FUNCTION _pgqueue_queues_with(p_jobs text) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    here text := '';
    found_status text := p_jobs;
BEGIN
    LOOP
        IF p_jobs = 'claimable' THEN
            SELECT job.queue_name INTO here FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.queue_name > here
            ORDER BY job.queue_name LIMIT 1;
        ELSE
            SELECT job.status, job.queue_name INTO found_status, here FROM pgqueue_job_live AS job
            WHERE job.status IN ('retry', 'blocked') AND (job.status, job.queue_name) > (p_jobs, here)
            ORDER BY job.status, job.queue_name LIMIT 1;
        END IF;
        EXIT WHEN NOT FOUND OR found_status <> p_jobs;
        RETURN NEXT here;
    END LOOP;
END $$;

-- Return the groups of a (queue, priority) that have claimable jobs, with the first job of each, in the order of their
-- names after p_after, at most p_most. This takes one probe of the index for each group: it jumps from the first job of
-- one to that of the next. Each probe reads the dead index entries of its group, so workers ration these searches.
CREATE FUNCTION _pgqueue_groups_after(p_queue_name text, p_priority integer, p_after text, p_most integer)
RETURNS TABLE (group_key text, run_after timestamptz, id bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    group_key := p_after;
    FOR number IN 1..p_most LOOP
        SELECT job.group_key, job.run_after, job.id
        INTO _pgqueue_groups_after.group_key, _pgqueue_groups_after.run_after, _pgqueue_groups_after.id
        FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') AND job.group_key > _pgqueue_groups_after.group_key
            AND job.queue_name = p_queue_name AND job.priority = p_priority
        ORDER BY job.group_key, job.run_after, job.id LIMIT 1;
        EXIT WHEN NOT FOUND;
        RETURN NEXT;
    END LOOP;
END $$;

-- Write the policy of the task into jobs that were enqueued without one (with plain SQL), before they run, so
-- that recovery does not need to load the task. Returns the ids of jobs that have expired because of it.
CREATE FUNCTION _pgqueue_fill_policy(
    p_ids bigint[], p_leases bigint[], p_max_attempts integer[], p_timeouts integer[], p_on_lost text[],
    p_expires_after double precision[]
) RETURNS SETOF bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
    WITH filled AS (
        UPDATE pgqueue_job_live AS job SET
            max_attempts = coalesce(job.max_attempts, given.max_attempts),
            timeout = coalesce(job.timeout, given.timeout),
            on_lost = coalesce(job.on_lost, given.on_lost),
            deadline = coalesce(job.deadline, job.last_attempted_at + given.timeout * interval '1 second'),
            expires_at = coalesce(job.expires_at,
                greatest(job.enqueued_at, job.run_after) + given.expires_after * interval '1 second')
        FROM unnest(p_ids, p_leases, p_max_attempts, p_timeouts, p_on_lost, p_expires_after)
            AS given (id, lease, max_attempts, timeout, on_lost, expires_after)
        WHERE job.id = given.id AND job.lease = given.lease
        RETURNING job.id, job.expires_at
    )
    SELECT filled.id FROM filled WHERE filled.expires_at <= clock_timestamp()
$$;
