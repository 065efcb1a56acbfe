-- Return the first claimable job of each priority of a queue, for the priorities between two bounds (exclusive).
-- This takes one probe of the index for each priority: it jumps from the first job of one to that of the next.
CREATE FUNCTION pgqueue_first_due_between_v1(p_queue_name text, p_below integer, p_above integer)
RETURNS TABLE (queue_name text, priority integer, run_after timestamptz, id bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    queue_name := p_queue_name;
    priority := p_below;
    LOOP
        SELECT job.priority, job.run_after, job.id
        INTO pgqueue_first_due_between_v1.priority, pgqueue_first_due_between_v1.run_after,
            pgqueue_first_due_between_v1.id
        FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') AND job.queue_name = p_queue_name
            AND job.priority < pgqueue_first_due_between_v1.priority AND job.priority > p_above
        ORDER BY job.priority DESC, job.run_after, job.id LIMIT 1;
        EXIT WHEN NOT FOUND;
        RETURN NEXT;
    END LOOP;
END $$;
