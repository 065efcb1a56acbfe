-- Return the depth of each queue that has live jobs, and the ages in seconds of its oldest ready and its longest
-- running job. Jobs that are not due are scheduled, or retrying if they have been attempted. All but running jobs are
-- counted for each queue up to p_most + 1, which says that there are more than p_most, so the time depends on the
-- number of queues and priorities, not on the backlog. NULL scheduled jobs: too many retries hide them. All counts are
-- of one moment. The result has several rows for some queues: add them up.
--
-- The functions of a session keep their plans, and the share of each status changes by the minute, so a scan of the
-- table is ruled out, whatever the statistics say, and so are bitmaps, which read an index to its end, and the
-- compilation of plans that only look expensive. With these, the plan for a queue suits all: to make one for each, as
-- the server otherwise does, takes a quarter of the time, or two thirds if there is little to count.
CREATE FUNCTION _pgqueue_depth(p_most bigint) RETURNS TABLE (
    queue_name text, ready bigint, scheduled bigint, retrying bigint, running bigint, blocked bigint,
    oldest_ready double precision, longest_running double precision
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan TO off SET enable_bitmapscan TO off SET jit TO off
SET plan_cache_mode TO force_generic_plan AS $$
DECLARE
    moment constant timestamptz := clock_timestamp();
    most constant bigint := p_most + 1;
    name text;
    first record;
    counted bigint;
    later bigint;  -- the jobs that are not due
    oldest timestamptz;
BEGIN
    running := 0;
    blocked := 0;
    FOR name IN SELECT _pgqueue_queues_with('claimable') LOOP
        queue_name := name;
        ready := 0;
        later := 0;
        oldest := NULL;
        -- Not status = 'retry': to find these, the planner may read the index of the claim, which has many others.
        SELECT count(*) INTO retrying FROM (
            SELECT FROM pgqueue_job_live AS job
            WHERE job.status IN ('retry', 'blocked') AND job.status > 'blocked' AND job.queue_name = name
                AND job.run_after > moment LIMIT most
        ) AS part;
        FOR first IN
            SELECT probe.priority, probe.run_after, probe.id, kind.is_grouped
            FROM (VALUES (false), (true)) AS kind (is_grouped),
                _pgqueue_first_of_priorities(name, kind.is_grouped, 101, -101) AS probe
        LOOP
            IF first.run_after <= moment THEN
                oldest := least(oldest, first.run_after);
            END IF;
            IF first.run_after <= moment AND ready < most THEN
                -- From the first job on: what was before it has been claimed, and its dead entries may still be there.
                SELECT count(*) INTO counted FROM (
                    SELECT FROM pgqueue_job_live AS job
                    WHERE job.status IN ('pending', 'retry') AND job.queue_name = name
                        AND job.is_grouped = first.is_grouped AND job.priority = first.priority
                        AND (job.run_after, job.id) >= (first.run_after, first.id) AND job.run_after <= moment
                    LIMIT most - ready
                ) AS part;
                ready := ready + counted;
            END IF;
            -- The index does not separate retries from others, so as many more are counted as there are retries.
            IF later < retrying + most THEN
                SELECT count(*) INTO counted FROM (
                    SELECT FROM pgqueue_job_live AS job
                    WHERE job.status IN ('pending', 'retry') AND job.queue_name = name
                        AND job.is_grouped = first.is_grouped AND job.priority = first.priority
                        AND job.run_after > moment
                    LIMIT retrying + most - later
                ) AS part;
                later := later + counted;
            END IF;
        END LOOP;
        scheduled := CASE WHEN retrying < most OR later <= retrying THEN later - retrying END;
        oldest_ready := date_part('epoch', moment - oldest);
        RETURN NEXT;
    END LOOP;
    -- There are no more running jobs than slots.
    RETURN QUERY
    SELECT job.queue_name::text, 0::bigint, 0::bigint, 0::bigint, count(*), 0::bigint, NULL::double precision,
        greatest(0, date_part('epoch', moment - min(job.last_attempted_at)))
    FROM (
        SELECT live.queue_name, live.last_attempted_at FROM pgqueue_job_live AS live
        WHERE live.status = 'running' ORDER BY live.worker
    ) AS job GROUP BY 1;
    RETURN QUERY
    SELECT queue.name, 0::bigint, 0::bigint, 0::bigint, 0::bigint, (
        SELECT count(*) FROM (
            SELECT FROM pgqueue_job_live AS job
            WHERE job.status = 'blocked' AND job.queue_name = queue.name LIMIT most
        ) AS part
    ), NULL::double precision, NULL::double precision
    FROM _pgqueue_queues_with('blocked') AS queue (name);
END $$;

-- Count the live jobs, once a minute, whoever asks (tables/maintenance.sql). Returns whether this call has done it. A
-- count that the server refuses is left out, with a warning in its log: maintenance goes on.
-- A million jobs take 0.1 s, or 1.5 s as long as no VACUUM has run, so it ends at two million of a kind in a queue.
CREATE FUNCTION _pgqueue_count_depth() RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    this constant timestamptz := date_bin('1 minute', clock_timestamp(), 'epoch');
BEGIN
    IF EXISTS (SELECT FROM pgqueue_depth WHERE queue_name = '' AND minute >= this) OR NOT _pgqueue_on_duty('depth') THEN
        RETURN false;
    END IF;
    -- Race: another supervisor has counted between the look and the lock. Its rows stay.
    INSERT INTO pgqueue_depth (
        queue_name, minute, ready, scheduled, retrying, running, blocked, oldest_ready, versions)
    SELECT coalesce(depth.queue_name, ''), this, coalesce(sum(depth.ready), 0), coalesce(sum(depth.scheduled), 0),
        coalesce(sum(depth.retrying), 0), coalesce(sum(depth.running), 0), coalesce(sum(depth.blocked), 0),
        max(depth.oldest_ready), CASE WHEN depth.queue_name IS NULL THEN (
            SELECT array_agg(DISTINCT worker.version::text) FROM pgqueue_worker AS worker
            WHERE worker.version <> '' AND worker.heartbeat_at > this - interval '1 minute') END
    FROM _pgqueue_depth(2000000) AS depth GROUP BY GROUPING SETS ((depth.queue_name), ())
    ON CONFLICT DO NOTHING;
    RETURN true;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'pgqueue: the live jobs could not be counted: %', SQLERRM;
    RETURN false;
END $$;
