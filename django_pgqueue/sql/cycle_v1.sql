-- Whether jobs that join this batch and run after these jobs and batches would wait for themselves. A job waits only for
-- what exists when it is enqueued, so only a batch can close a circle: it waits for members that are added later. Without
-- a job that waits for the batch there is none. Members of the batch were looked at when they were added.
--
-- Race: two transactions close one circle of two batches together, and do not see each other. Both batches then stay
-- open, where people see them.
CREATE FUNCTION pgqueue_cycle_v1(p_batch bigint, p_parents bigint[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT FROM pgqueue_edge AS edge WHERE edge.parent_id = p_batch) AND EXISTS (
        WITH RECURSIVE before (id) AS (
            SELECT unnest(p_parents)
            UNION
            SELECT earlier.id
            FROM before CROSS JOIN LATERAL (
                SELECT edge.parent_id AS id FROM pgqueue_edge AS edge WHERE edge.child_id = before.id
                UNION ALL
                SELECT job.id FROM pgqueue_job_live AS job WHERE job.batch = before.id AND job.status = 'blocked'
            ) AS earlier
            WHERE before.id <> p_batch AND NOT EXISTS (
                SELECT FROM pgqueue_job_live AS job WHERE job.id = before.id AND job.batch = p_batch)
        )
        SELECT FROM before WHERE before.id = p_batch)
$$;
