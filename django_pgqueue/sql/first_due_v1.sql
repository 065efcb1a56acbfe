-- Return the ranges that a worker should read, with the first claimable job of every (queue, priority). For
-- ranges that the worker knows, this is the first job above the mark; the gaps between them are searched from the
-- start. So no probe reads the dead index entries of a known range, and without known ranges this is a rescan
-- from the start. Jobs that are not due yet are returned, too: the worker sleeps until they are.
--
-- Jobs with a group are claimed group by group (lifecycle/claim.py). Read by time, they tell which groups have work.
CREATE FUNCTION pgqueue_first_due_v1(
    p_queues text[],                     -- NULL: every queue except those in p_except
    p_except text[],
    p_known_queues text[], p_known_priorities integer[], p_marks timestamptz[], p_mark_ids bigint[],
    p_grouped boolean DEFAULT false,     -- the jobs with a group instead of those without
    p_most integer DEFAULT 1             -- how many jobs above each mark
) RETURNS TABLE (queue_name text, priority integer, run_after timestamptz, id bigint, group_key text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    known record;
    here text := '';                     -- how far the search has come: this queue
    below integer := -101;               -- and this priority in it
BEGIN
    FOR known IN
        SELECT range.queue_name AS name, range.priority AS level, range.mark, range.mark_id
        FROM unnest(p_known_queues, p_known_priorities, p_marks, p_mark_ids)
            AS range (queue_name, priority, mark, mark_id)
        UNION ALL
        SELECT wanted, 101, NULL, NULL FROM unnest(p_queues) AS wanted
        ORDER BY 1, 2 DESC
    LOOP
        IF known.name <> here THEN
            RETURN QUERY SELECT * FROM pgqueue_first_due_between_v1(here, below, -101, p_grouped);
            IF p_queues IS NULL THEN
                RETURN QUERY SELECT first_due.*
                FROM pgqueue_queues_between_v1(here, known.name, p_except) AS name,
                    pgqueue_first_due_between_v1(name, 101, -101, p_grouped) AS first_due;
            END IF;
            here := known.name;
            below := 101;
        END IF;
        CONTINUE WHEN known.level = 101;
        RETURN QUERY SELECT * FROM pgqueue_first_due_between_v1(here, below, known.level, p_grouped);
        RETURN QUERY SELECT known.name, known.level, job.run_after, job.id, job.group_key::text
            FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.queue_name = known.name
                AND job.is_grouped = p_grouped AND job.priority = known.level
                AND (job.run_after, job.id) > (known.mark, known.mark_id)
            ORDER BY job.run_after, job.id LIMIT p_most;
        below := known.level;
    END LOOP;
    RETURN QUERY SELECT * FROM pgqueue_first_due_between_v1(here, below, -101, p_grouped);
    IF p_queues IS NULL THEN
        RETURN QUERY SELECT first_due.*
        FROM pgqueue_queues_between_v1(here, NULL, p_except) AS name,
            pgqueue_first_due_between_v1(name, 101, -101, p_grouped) AS first_due;
    END IF;
END $$;
