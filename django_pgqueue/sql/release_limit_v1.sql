-- Release the lines of all limit keys of a limit, after it was changed. The keys are found one by one: the column
-- is compared byte by byte, so that they stand together in the index.
CREATE FUNCTION pgqueue_release_limit_v1(p_name text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pgqueue_release_v1(ARRAY(
        WITH RECURSIVE line AS (
            SELECT (p_name || '/') COLLATE "C" AS key
            UNION ALL
            SELECT following.limit_key::text FROM line CROSS JOIN LATERAL (
                SELECT job.limit_key FROM pgqueue_job_live AS job
                WHERE job.wait_position IS NOT NULL AND job.status IN ('pending', 'retry', 'blocked')
                    AND job.limit_key > line.key AND job.limit_key < p_name || '0'  -- which follows the slash
                ORDER BY job.limit_key LIMIT 1
            ) AS following
        )
        SELECT line.key FROM line
        UNION ALL
        SELECT p_name), true);
END $$;
