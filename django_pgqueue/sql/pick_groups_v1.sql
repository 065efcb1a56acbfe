-- Lock and return the jobs of a (queue, priority) that a claim by SQL looks at, one of each group in turn. The turn begins
-- after the group p_after, and ends with the group last_group. Rows that others have locked are skipped.
CREATE FUNCTION pgqueue_pick_groups_v1(
    p_queue_name text, p_priority integer, p_after text, p_limit integer, p_now timestamptz,
    OUT picked bigint[], OUT last_group text
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    here text := p_after;
    found_any boolean := true;  -- since the first group
    job_id bigint;
BEGIN
    picked := '{}';
    last_group := p_after;
    WHILE cardinality(picked) < p_limit LOOP
        SELECT job.group_key INTO here FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') AND job.group_key > here
            AND job.queue_name = p_queue_name AND job.priority = p_priority
        ORDER BY job.group_key LIMIT 1;
        IF NOT FOUND THEN
            EXIT WHEN NOT found_any;
            here := '';
            found_any := false;
            CONTINUE;
        END IF;
        SELECT job.id INTO job_id FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') AND job.group_key = here AND job.queue_name = p_queue_name
            AND job.priority = p_priority AND job.run_after <= p_now AND job.id <> ALL (picked)
        ORDER BY job.run_after, job.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            picked := picked || job_id;
            last_group := here;
            found_any := true;
        END IF;
    END LOOP;
END $$;
