-- Return the first claimable job of each priority of a queue, for the priorities between two bounds (exclusive): of the
-- jobs without a group, or of those with one.
-- This takes one probe of the index for each priority: it jumps from the first job of one to that of the next.
CREATE FUNCTION pgqueue_first_due_between_v1(p_queue_name text, p_below integer, p_above integer, p_grouped boolean)
RETURNS TABLE (queue_name text, priority integer, run_after timestamptz, id bigint, group_key text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    queue_name := p_queue_name;
    priority := p_below;
    LOOP
        SELECT job.priority, job.run_after, job.id, job.group_key
        INTO pgqueue_first_due_between_v1.priority, pgqueue_first_due_between_v1.run_after,
            pgqueue_first_due_between_v1.id, pgqueue_first_due_between_v1.group_key
        FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') AND job.queue_name = p_queue_name
            AND job.is_grouped = p_grouped AND job.priority < pgqueue_first_due_between_v1.priority
            AND job.priority > p_above
        ORDER BY job.priority DESC, job.run_after, job.id LIMIT 1;
        EXIT WHEN NOT FOUND;
        RETURN NEXT;
    END LOOP;
END $$;
