-- How many jobs run under a limit, counted up to it, and those five of them that have run the longest (why_limited_v1.sql).
-- Without a limit, nothing is read. p_queue: the queue of a limit without a key; NULL: all queues.
CREATE FUNCTION pgqueue_why_holders_v1(
    p_key text, p_queue text, p_allowed integer, OUT running integer, OUT jobs jsonb
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    holders bigint[];
BEGIN
    IF p_allowed IS NULL THEN
        RETURN;
    ELSIF p_key IS NOT NULL THEN
        holders := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND job.limit_key = p_key LIMIT p_allowed);
    ELSE
        holders := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.status = 'running' AND (p_queue IS NULL OR job.queue_name = p_queue)
            ORDER BY job.worker LIMIT p_allowed);  -- the order is that of the index of running jobs
    END IF;
    running := cardinality(holders);
    jobs := pgqueue_why_longest_v1(holders, 5);
END $$;
