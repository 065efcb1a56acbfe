-- End older jobs of the keys in p_replacing, whose limits let a newer job replace older ones (on_full = 'cancel_old').
-- Of the jobs that run, wait in line, or were picked by the claim, the newest stay, as many as the limit allows. The
-- others are cancelled, and those that run are asked to stop. The gate calls this (gate_v1.sql), so it must not wait:
-- rows that others have locked are left for the next claim. Returns how many jobs it cancelled or asked to stop.
CREATE FUNCTION pgqueue_replace_v1(p_ids bigint[], p_keys text[], p_replacing text[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    older bigint[];
BEGIN
    older := ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job
        WHERE job.cancel_requested_at IS NULL AND job.id = ANY (ARRAY(
            SELECT old.id
            FROM unnest(p_replacing) AS given (key)
            JOIN pgqueue_limit AS setting ON setting.name = split_part(given.key, '/', 1)
            CROSS JOIN LATERAL (
                SELECT rival.id FROM (
                    SELECT live.id FROM pgqueue_job_live AS live
                    WHERE live.limit_key = given.key AND live.status = 'running'
                    UNION
                    SELECT live.id FROM pgqueue_job_live AS live
                    WHERE live.limit_key = given.key AND live.wait_position IS NOT NULL
                        AND live.status IN ('pending', 'retry', 'blocked')
                    UNION
                    SELECT pick.id FROM unnest(p_ids, p_keys) AS pick (id, key) WHERE pick.key = given.key
                ) AS rival
                ORDER BY rival.id DESC OFFSET setting.concurrency
            ) AS old
        ))
        FOR UPDATE SKIP LOCKED);
    RETURN CASE WHEN older = '{}' THEN 0
        ELSE cardinality(pgqueue_cancel(older, 'replaced by a newer job of its limit key')) END;
END $$;
