-- Return the first claimable job of each priority of a queue, for the priorities between two bounds (exclusive): of the
-- jobs without a group, or of those with one.
--
-- Each step reads some entries of the index: few where a priority has many jobs, which the next step jumps over, and more
-- where most of them belong to new priorities.
CREATE FUNCTION pgqueue_first_of_priorities_v1(p_queue_name text, p_grouped boolean, p_below integer, p_above integer)
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
