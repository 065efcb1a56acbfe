-- A round of maintenance over at most p_limit limit keys that have a line, after the key p_after: release the lines
-- that have room, but whose first job is blocked, or waits for its rate longer than that explains. Returns the last key that was looked at (NULL: there are no more),
-- how many it looked at, and how many jobs were released.
--
-- This is for what the functions cannot see: jobs that were deleted by hand, a cancel of a whole line that was rolled
-- back after the finish that skipped its locked rows, and a finish in a transaction that is not READ COMMITTED, such as
-- that of an atomic task, whose snapshot may be older than the line.
CREATE FUNCTION pgqueue_repair_lines_v1(
    p_after text, p_limit integer, OUT lines integer, OUT reached text, OUT released integer
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    keys text[];
BEGIN
    lines := 0;
    released := 0;
    IF NOT pgqueue_on_duty_v1('lines') THEN
        RETURN;
    END IF;
    WITH RECURSIVE line AS (
        (SELECT job.limit_key, 1 AS nth FROM pgqueue_job_live AS job
        WHERE job.wait_position IS NOT NULL AND job.status IN ('pending', 'retry', 'blocked') AND job.limit_key > p_after
        ORDER BY job.limit_key LIMIT 1)
        UNION ALL
        SELECT following.limit_key, line.nth + 1 FROM line CROSS JOIN LATERAL (
            SELECT job.limit_key FROM pgqueue_job_live AS job
            WHERE job.wait_position IS NOT NULL AND job.status IN ('pending', 'retry', 'blocked')
                AND job.limit_key > line.limit_key
            ORDER BY job.limit_key LIMIT 1
        ) AS following
        WHERE line.nth < p_limit
    )
    SELECT count(*), CASE WHEN count(*) = p_limit THEN max(line.limit_key) END,
        array_agg(line.limit_key) FILTER (WHERE coalesce(
            busy.running < coalesce(setting.concurrency, CASE WHEN setting.rate IS NULL AND setting.is_overridden IS NOT TRUE THEN 1 END), true))
    INTO lines, reached, keys
    FROM line LEFT JOIN pgqueue_limit AS setting ON setting.name = split_part(line.limit_key, '/', 1)
    CROSS JOIN LATERAL (
        SELECT count(*) AS running FROM pgqueue_job_live AS job
        WHERE job.limit_key = line.limit_key AND job.status = 'running'
    ) AS busy;
    IF keys IS NOT NULL THEN
        released := pgqueue_release_v1(keys);
    END IF;
END $$;
