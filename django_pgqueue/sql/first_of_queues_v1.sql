-- Return the first claimable job of each (queue, with or without a group, priority) of the queues between two names
-- (exclusive; NULL: to the end).
--
-- Each step reads some entries of the index: few where a queue has many jobs, in which the search then jumps from
-- priority to priority, and more where most of them belong to new queues or priorities.
CREATE FUNCTION pgqueue_first_of_queues_v1(p_after text, p_before text, p_except text[])
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
            RETURN QUERY SELECT * FROM pgqueue_first_of_priorities_v1(p_after, grouped, priority, -101);
            IF NOT grouped THEN
                RETURN QUERY SELECT * FROM pgqueue_first_of_priorities_v1(p_after, true, 101, -101);
            END IF;
        END IF;
    END LOOP;
END $$;
