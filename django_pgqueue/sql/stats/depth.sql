-- Return the depth of each queue that has live jobs, and the ages in seconds of its oldest ready and its longest
-- running job. Jobs that are not due are scheduled, or retrying if they have been attempted. Jobs are counted up to
-- p_most: ready ones and those not due for each queue, running and blocked ones of all queues together. A count that
-- ends there is replaced by the planner's estimate, if that is larger; that of all running or blocked jobs is shared
-- out as they were found. Whether a job has been attempted is not in the index of the claim, so only the 1,000 jobs of
-- each priority that are due first are looked at. Planning is most of the work, so a queue has one estimate, divided
-- into jobs that are due and not due as all waiting jobs are: the planner takes the queue and the time as independent,
-- too. So the time depends on the number of queues and priorities, not on the backlog. The result has several rows for
-- some queues: add them up.
--
-- The functions of a session keep their plans, and the share of each status changes by the minute. So a scan of the
-- table is ruled out, whatever the statistics say, and so are bitmaps, which read an index to its end, and the
-- compilation of plans that only look expensive.
CREATE FUNCTION _pgqueue_depth(p_most integer) RETURNS TABLE (
    queue_name text, ready bigint, scheduled bigint, retrying bigint, running bigint, blocked bigint,
    oldest_ready double precision, longest_running double precision
) LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan TO off SET enable_bitmapscan TO off SET jit TO off AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    waiting constant text := 'status IN (''pending'', ''retry'')';
    name text;
    first record;
    counted bigint;
    attempted bigint;
    later bigint;  -- the jobs that are not due
    is_part boolean;  -- whether more of these were counted than were looked at
    estimate double precision;
    share double precision;  -- of the waiting jobs, those that are due
    oldest timestamptz;
BEGIN
    running := 0;
    blocked := 0;
    FOR name IN SELECT _pgqueue_claimable_queues() LOOP
        queue_name := name;
        ready := 0;
        later := 0;
        retrying := 0;
        is_part := false;
        oldest := NULL;
        FOR first IN
            SELECT probe.priority, probe.run_after, probe.id, kind.is_grouped
            FROM (VALUES (false), (true)) AS kind (is_grouped),
                _pgqueue_first_of_priorities(name, kind.is_grouped, 101, -101) AS probe
        LOOP
            IF first.run_after <= moment THEN
                oldest := least(oldest, first.run_after);
            END IF;
            IF first.run_after <= moment AND ready < p_most THEN
                -- From the first job on: what was before it has been claimed, and its dead entries may still be there.
                SELECT count(*) INTO counted FROM (
                    SELECT FROM pgqueue_job_live AS job
                    WHERE job.status IN ('pending', 'retry') AND job.queue_name = name
                        AND job.is_grouped = first.is_grouped AND job.priority = first.priority
                        AND (job.run_after, job.id) >= (first.run_after, first.id) AND job.run_after <= moment
                    LIMIT p_most - ready
                ) AS part;
                ready := ready + counted;
            END IF;
            IF later < p_most THEN
                SELECT count(*) INTO counted FROM (
                    SELECT FROM pgqueue_job_live AS job
                    WHERE job.status IN ('pending', 'retry') AND job.queue_name = name
                        AND job.is_grouped = first.is_grouped AND job.priority = first.priority
                        AND job.run_after > moment
                    LIMIT p_most - later
                ) AS part;
                SELECT count(*) FILTER (WHERE part.status = 'retry') INTO attempted FROM (
                    SELECT job.status FROM pgqueue_job_live AS job
                    WHERE job.status IN ('pending', 'retry') AND job.queue_name = name
                        AND job.is_grouped = first.is_grouped AND job.priority = first.priority
                        AND job.run_after > moment
                    LIMIT least(p_most - later, 1000)
                ) AS part;
                attempted := least(attempted, counted);  -- one that was counted before may be claimed by now
                is_part := is_part OR counted > 1000;
                later := later + counted;
                retrying := retrying + attempted;
            END IF;
        END LOOP;
        IF ready >= p_most OR later >= p_most OR is_part THEN
            share := coalesce(share, _pgqueue_estimate(format(waiting || ' AND run_after <= %L', moment))
                / _pgqueue_estimate(waiting));
            estimate := _pgqueue_estimate(format(waiting || ' AND queue_name = %L', name));
            IF ready >= p_most THEN
                ready := greatest(ready, estimate * share);
            END IF;
            IF later >= p_most THEN
                later := greatest(later, estimate * (1 - share));
            END IF;
            IF later >= p_most OR is_part THEN
                -- Those that were looked at are due first, which most retries are: they say little about the rest.
                retrying := least(later, greatest(retrying, (1 - share)
                    * _pgqueue_estimate(format('status = ''retry'' AND queue_name = %L', name))));
            END IF;
        END IF;
        scheduled := later - retrying;
        oldest_ready := greatest(0, date_part('epoch', moment - oldest));
        RETURN NEXT;
    END LOOP;
    -- Each order is that of an index, which is therefore read only as far as needed: of running jobs, and of those that
    -- are blocked by limit keys, paused tasks, and parents.
    RETURN QUERY
    WITH part AS MATERIALIZED (
        SELECT job.status, job.queue_name, count(*) AS jobs, min(job.last_attempted_at) AS since FROM (
            (SELECT live.status, live.queue_name, live.last_attempted_at FROM pgqueue_job_live AS live
            WHERE live.status = 'running' ORDER BY live.worker LIMIT p_most)
            UNION ALL
            (SELECT live.status, live.queue_name, NULL FROM pgqueue_job_live AS live
            WHERE live.status = 'blocked' AND live.wait_position IS NOT NULL
                AND NOT starts_with(live.waiting_reason, 'paused')
            ORDER BY live.limit_key LIMIT p_most)
            UNION ALL
            (SELECT live.status, live.queue_name, NULL FROM pgqueue_job_live AS live
            WHERE live.status = 'blocked' AND starts_with(live.waiting_reason, 'paused')
            ORDER BY live.task_path, live.id LIMIT p_most)
            UNION ALL
            (SELECT live.status, live.queue_name, NULL FROM pgqueue_job_live AS live
            WHERE live.status = 'blocked' AND starts_with(live.waiting_reason, 'waits for job')
            ORDER BY live.id LIMIT p_most)
        ) AS job GROUP BY 1, 2
    ), whole AS MATERIALIZED (
        SELECT part.status, sum(part.jobs) AS jobs, CASE WHEN sum(part.jobs) >= p_most
            THEN _pgqueue_estimate(format('status = %L', part.status)) END AS estimate
        FROM part GROUP BY 1
    ), shared AS (
        SELECT part.queue_name, part.status = 'running' AS runs, part.since,
            greatest(part.jobs, whole.estimate * part.jobs / whole.jobs)::bigint AS jobs
        FROM part JOIN whole USING (status)
    )
    SELECT shared.queue_name::text, 0::bigint, 0::bigint, 0::bigint, CASE WHEN shared.runs THEN shared.jobs ELSE 0 END,
        CASE WHEN shared.runs THEN 0 ELSE shared.jobs END, NULL::double precision,
        CASE WHEN shared.runs THEN greatest(0, date_part('epoch', moment - shared.since)) END
    FROM shared;
END $$;

-- Return how many live jobs meet a condition, as the planner estimates it from the last ANALYZE of the leaf. This
-- takes as long as planning, whatever the backlog.
CREATE FUNCTION _pgqueue_estimate(p_condition text) RETURNS double precision
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) SELECT FROM pgqueue_job_live WHERE ' || p_condition INTO plan;
    RETURN plan #>> '{0,Plan,Plan Rows}';
END $$;
