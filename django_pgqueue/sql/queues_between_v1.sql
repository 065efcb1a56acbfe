-- Return the queues that have claimable jobs, between two names (exclusive; NULL: to the end). This takes one
-- probe of the index for each queue.
CREATE FUNCTION pgqueue_queues_between_v1(p_after text, p_before text, p_except text[])
RETURNS SETOF text LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    here text := p_after;
BEGIN
    LOOP
        -- Two statements instead of one with an OR: only plain bounds can end an index scan.
        IF p_before IS NULL THEN
            SELECT job.queue_name INTO here FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.queue_name > here
            ORDER BY job.queue_name LIMIT 1;
        ELSE
            SELECT job.queue_name INTO here FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.queue_name > here AND job.queue_name < p_before
            ORDER BY job.queue_name LIMIT 1;
        END IF;
        EXIT WHEN NOT FOUND;
        IF here <> ALL (coalesce(p_except, '{}')) THEN
            RETURN NEXT here;
        END IF;
    END LOOP;
END $$;
