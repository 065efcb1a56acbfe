-- Why no worker may take a waiting job, whoever they are (why.sql): it has expired, waits for a time, for other jobs,
-- for the end of a pause, or for a limit. NULL: a worker may take it.
CREATE FUNCTION pgqueue_why_held_v1(p_job pgqueue_job_live, p_now timestamptz, OUT code text, OUT facts jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF p_job.expires_at <= p_now THEN
        code := 'expired';
        facts := jsonb_build_object('expired_at', p_job.expires_at);
    ELSIF p_job.status = 'blocked' AND starts_with(p_job.waiting_reason, 'waits for job') THEN
        SELECT after.code, after.facts INTO code, facts FROM pgqueue_why_after_v1(p_job.id) AS after;
    ELSIF p_job.run_after > p_now AND p_job.status <> 'blocked' AND p_job.waiting_reason <> 'waits for its rate limit' THEN
        SELECT later.code, later.facts INTO code, facts FROM pgqueue_why_later_v1(p_job) AS later;
    END IF;
    IF code IS NULL THEN
        SELECT paused.code, paused.facts INTO code, facts FROM pgqueue_why_paused_v1(p_job) AS paused;
    END IF;
    IF code IS NULL THEN
        SELECT limited.code, limited.facts INTO code, facts FROM pgqueue_why_limited_v1(p_job, p_now) AS limited;
    END IF;
    IF code IS NULL AND p_job.status = 'blocked' AND p_job.limit_key IS NULL THEN
        code := 'blocked';  -- by a statement that is not of this version
        facts := jsonb_build_object('reason', nullif(p_job.waiting_reason, ''));
    ELSIF code IS NULL AND p_job.run_after > p_now AND p_job.status <> 'blocked' THEN  -- the alarm clock of its line (gate_v1.sql)
        code := 'rate';
        facts := jsonb_build_object(
            'limit', split_part(p_job.limit_key, '/', 1), 'key', p_job.limit_key, 'next_start', p_job.run_after);
    END IF;
END $$;
