-- Return the groups of a (queue, priority) that have claimable jobs, with the first job of each, in the order of their
-- names after p_after, at most p_most. This takes one probe of the index for each group: it jumps from the first job of
-- one to that of the next. Each probe reads the dead index entries of its group, so workers ration these searches.
CREATE FUNCTION pgqueue_groups_after_v1(p_queue_name text, p_priority integer, p_after text, p_most integer)
RETURNS TABLE (group_key text, run_after timestamptz, id bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    group_key := p_after;
    FOR number IN 1..p_most LOOP
        SELECT job.group_key, job.run_after, job.id
        INTO pgqueue_groups_after_v1.group_key, pgqueue_groups_after_v1.run_after, pgqueue_groups_after_v1.id
        FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') AND job.group_key > pgqueue_groups_after_v1.group_key
            AND job.queue_name = p_queue_name AND job.priority = p_priority
        ORDER BY job.group_key, job.run_after, job.id LIMIT 1;
        EXIT WHEN NOT FOUND;
        RETURN NEXT;
    END LOOP;
END $$;
