-- How many due jobs of a higher priority a worker would take first, counted up to p_most (why_ahead_v1.sql). p_queues are
-- the queues that it serves; an empty array: all but p_excluded. Each priority of a queue is read from its first job on,
-- so neither jobs of the future nor the entries of jobs that were claimed before are passed.
CREATE FUNCTION pgqueue_why_higher_v1(
    p_priority integer, p_now timestamptz, p_queues jsonb, p_excluded jsonb, p_paused text[], p_most integer
) RETURNS integer LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    name text;
    first record;
    part integer;
    counted integer := 0;
BEGIN
    FOR name IN
        SELECT served.name FROM jsonb_array_elements_text(p_queues) AS served (name)
        UNION ALL
        SELECT served.name FROM pgqueue_queues_between_v1(
            '', NULL, ARRAY(SELECT jsonb_array_elements_text(p_excluded))) AS served (name)
        WHERE p_queues = '[]'
    LOOP
        CONTINUE WHEN name = ANY (p_paused);
        FOR first IN
            SELECT probe.priority, probe.run_after, probe.id, kind.is_grouped
            FROM (VALUES (false), (true)) AS kind (is_grouped),
                pgqueue_first_due_between_v1(name, 101, p_priority, kind.is_grouped) AS probe
            WHERE probe.run_after <= p_now
        LOOP
            SELECT count(*) INTO part FROM (
                SELECT FROM pgqueue_job_live AS job
                WHERE job.status IN ('pending', 'retry') AND job.queue_name = name
                    AND job.is_grouped = first.is_grouped AND job.priority = first.priority
                    AND (job.run_after, job.id) >= (first.run_after, first.id) AND job.run_after <= p_now
                LIMIT p_most - counted
            ) AS due;
            counted := counted + part;
            IF counted >= p_most THEN
                RETURN counted;
            END IF;
        END LOOP;
    END LOOP;
    RETURN counted;
END $$;
