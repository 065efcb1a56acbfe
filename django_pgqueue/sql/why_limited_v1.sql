-- Which limit holds a job (why.sql): that of its limit key, of its queue, or of the installation. A job that is
-- not in line yet meets the limits of queues first, as in the claim. Running jobs are counted up to the limit.
CREATE FUNCTION pgqueue_why_limited_v1(p_job pgqueue_job_live, p_now timestamptz, OUT code text, OUT facts jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    rule record;
    held record;
    next_start timestamptz;
BEGIN
    FOR rule IN
        SELECT own.name, own.limit_key,
            coalesce(setting.concurrency, CASE WHEN setting.rate IS NULL AND setting.is_overridden IS NOT TRUE THEN 1 END) AS allowed,
            setting.rate, setting.per, setting.burst, setting.name IS NOT NULL AS is_set,
            CASE WHEN p_job.status = 'blocked' THEN 0 ELSE 3 END AS nth
        FROM (SELECT split_part(p_job.limit_key, '/', 1) AS name, p_job.limit_key::text AS limit_key) AS own
        LEFT JOIN pgqueue_limit AS setting ON setting.name = own.name
        WHERE own.limit_key IS NOT NULL
        UNION ALL
        SELECT setting.name, NULL, setting.concurrency, setting.rate, setting.per, setting.burst, true,
            CASE WHEN setting.name = '*' THEN 1 ELSE 2 END
        FROM pgqueue_limit AS setting WHERE setting.name IN ('*', 'queue:' || p_job.queue_name)
        ORDER BY nth
    LOOP
        SELECT holders.running, holders.jobs INTO held FROM pgqueue_why_holders_v1(
            rule.limit_key, CASE WHEN rule.name <> '*' THEN p_job.queue_name END, rule.allowed) AS holders;
        next_start := pgqueue_next_start_v1(
            (SELECT rate.tat FROM pgqueue_rate AS rate WHERE rate.key = coalesce(rule.limit_key, rule.name)), p_now,
            rule.rate, rule.per, rule.burst, 1);
        code := CASE WHEN held.running >= rule.allowed THEN 'limit' WHEN next_start > p_now THEN 'rate' END;
        IF code IS NOT NULL THEN
            facts := jsonb_build_object(
                'limit', rule.name, 'is_set', rule.is_set, 'key', rule.limit_key, 'allowed', rule.allowed, 'running', held.running,
                'holders', CASE WHEN code = 'limit' THEN held.jobs END,
                'rate', rule.rate, 'per', extract(epoch FROM rule.per),
                'next_start', CASE WHEN next_start > p_now THEN next_start END,
                'place', CASE WHEN rule.limit_key IS NOT NULL THEN pgqueue_why_place_v1(p_job, 1001) END);
            RETURN;
        END IF;
    END LOOP;
END $$;
