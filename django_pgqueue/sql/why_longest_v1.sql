-- Those of the running jobs that have run the longest, for why.sql.
CREATE FUNCTION pgqueue_why_longest_v1(p_ids bigint[], p_most integer) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('id', one.id, 'task_path', one.task_path, 'since', one.last_attempted_at)
        ORDER BY one.last_attempted_at, one.id), '[]')
    FROM (
        SELECT job.id, job.task_path, job.last_attempted_at FROM pgqueue_job_live AS job
        WHERE job.id = ANY (p_ids) ORDER BY job.last_attempted_at, job.id LIMIT p_most
    ) AS one
$$;
