-- How many jobs of its key and queue start before this one, counted up to p_most (why.sql). A job that is not in line
-- yet comes after those of its priority that are. Two conditions instead of one with an OR: only plain bounds end a scan of
-- the index, and the rest of a line may be long.
CREATE FUNCTION pgqueue_why_place_v1(p_job pgqueue_job_live, p_most integer) RETURNS integer
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT count(*)::integer FROM (
        (SELECT FROM pgqueue_job_live AS ahead
        WHERE ahead.limit_key = p_job.limit_key AND ahead.queue_name = p_job.queue_name AND ahead.wait_position IS NOT NULL
            AND ahead.status IN ('pending', 'retry', 'blocked') AND ahead.priority > p_job.priority
        LIMIT p_most)
        UNION ALL
        (SELECT FROM pgqueue_job_live AS ahead
        WHERE ahead.limit_key = p_job.limit_key AND ahead.queue_name = p_job.queue_name AND ahead.wait_position IS NOT NULL
            AND ahead.status IN ('pending', 'retry', 'blocked') AND ahead.priority = p_job.priority
            AND ahead.wait_position < coalesce(p_job.wait_position, 9223372036854775807)
        LIMIT p_most)
        LIMIT p_most
    ) AS part
$$;
