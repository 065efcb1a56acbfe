-- Return the ranges that a worker should read, with the first claimable job of every (queue, priority), of jobs without
-- a group and of those with one. For ranges that the worker knows, this is the first job above the mark, or the first
-- few of those with a group; the gaps between them are searched from the start. So no probe reads the dead index
-- entries of a known range, and without known ranges this is a rescan from the start. Jobs that are not due yet are
-- returned, too: the worker sleeps until they are.
--
-- Jobs with a group are claimed group by group (jobs/claim.py). Read by time, they tell which groups have work.
--
-- The plans are fixed: with custom plans, each of thousands of short probes would be planned anew, and a sort would
-- read all jobs of a queue for the few that are wanted.
CREATE FUNCTION pgqueue_first_due_v1(
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
    searched boolean := false;           -- whether the gaps of this queue are
    here text := '';                     -- how far the search has come: this queue,
    grouped boolean := true;             -- its jobs without a group or those with one,
    below integer := -101;               -- and this priority of them
BEGIN
    FOR known IN
        SELECT range.queue_name AS name, range.is_grouped, range.priority AS level, range.mark, range.mark_id
        FROM unnest(p_known_queues, p_known_grouped, p_known_priorities, p_marks, p_mark_ids)
            AS range (queue_name, is_grouped, priority, mark, mark_id)
        UNION ALL
        SELECT wanted, false, 101, NULL, NULL FROM unnest(p_queues) AS wanted
        UNION ALL
        SELECT NULL, false, 101, NULL, NULL  -- the end
        ORDER BY 1, 2, 3 DESC
    LOOP
        IF known.name IS DISTINCT FROM here THEN
            IF searched THEN
                RETURN QUERY SELECT *, false FROM pgqueue_first_of_priorities_v1(here, grouped, below, -101);
            END IF;
            IF searched AND NOT grouped THEN
                RETURN QUERY SELECT *, false FROM pgqueue_first_of_priorities_v1(here, true, 101, -101);
            END IF;
            IF p_queues IS NULL THEN
                RETURN QUERY SELECT *, false FROM pgqueue_first_of_queues_v1(here, known.name, p_except);
            END IF;
            searched := p_queues IS NULL OR known.name = ANY (p_queues);
            here := known.name;
            grouped := false;
            below := 101;
        END IF;
        CONTINUE WHEN known.level = 101;
        IF known.is_grouped AND NOT grouped THEN
            IF searched THEN
                RETURN QUERY SELECT *, false FROM pgqueue_first_of_priorities_v1(here, false, below, -101);
            END IF;
            grouped := true;
            below := 101;
        END IF;
        IF searched THEN
            RETURN QUERY SELECT *, false FROM pgqueue_first_of_priorities_v1(here, grouped, below, known.level);
        END IF;
        RETURN QUERY SELECT known.name, known.level, job.run_after, job.id, job.group_key::text, true
            FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.queue_name = known.name
                AND job.is_grouped = known.is_grouped AND job.priority = known.level
                AND (job.run_after, job.id) > (known.mark, known.mark_id)
            ORDER BY job.run_after, job.id LIMIT CASE WHEN known.is_grouped THEN p_arrivals ELSE 1 END;
        below := known.level;
    END LOOP;
END $$;
