-- Return the first of the picked jobs that a claim by SQL takes: up to the one that makes it larger than 32 MB of JSON
-- (jobs/claim.py). A worker cannot know how large the next jobs are, and many may be as large as a job is allowed to be.
CREATE FUNCTION pgqueue_fitting_v1(p_picked bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT array_agg(sized.id ORDER BY sized.place) FILTER (WHERE sized.before < 32000000)
    FROM (
        SELECT job.id, job.place, sum(size.of_it) OVER (ORDER BY job.place) - size.of_it AS before
        FROM (
            SELECT live.*, array_position(p_picked, live.id) AS place FROM pgqueue_job_live AS live
            WHERE live.id = ANY (p_picked)
        ) AS job
        CROSS JOIN LATERAL (
            SELECT sum(CASE WHEN pg_column_compression(part) IS NULL THEN pg_column_size(part)
                ELSE octet_length(part::text) END) AS of_it
            FROM (VALUES (job.args), (job.kwargs), (job.metadata)) AS parts (part)
        ) AS size
    ) AS sized
$$;
