-- How many jobs of the same queue and priority, without a group, were due before this one, counted up to p_most
-- (why_ahead_v1.sql).
CREATE FUNCTION pgqueue_why_earlier_v1(p_job pgqueue_job_live, p_now timestamptz, p_most integer) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    first record;
    counted integer;
BEGIN
    SELECT probe.run_after, probe.id INTO first FROM pgqueue_first_due_between_v1(
        p_job.queue_name, p_job.priority + 1, p_job.priority - 1, false) AS probe;
    SELECT count(*) INTO counted FROM (
        SELECT FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') AND job.queue_name = p_job.queue_name
            AND NOT job.is_grouped AND job.priority = p_job.priority
            AND (job.run_after, job.id) >= (first.run_after, first.id)
            AND (job.run_after, job.id) < (p_job.run_after, p_job.id)
        LIMIT p_most
    ) AS part;
    RETURN counted;
END $$;
