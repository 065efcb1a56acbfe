-- What a job waits for: a row for each job and batch that has to end before it, and those that have failed and hold it.
-- state is the status of a job; of a batch it is open, running or how it has ended.
CREATE FUNCTION pgqueue_parents(
    id bigint, OUT parent_id bigint, OUT is_batch boolean, OUT name text, OUT state text, OUT if_failed text
) RETURNS SETOF record LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT edge.parent_id, batch.id IS NOT NULL, coalesce(batch.name, job.task_path)::text,
        CASE WHEN batch.is_open THEN 'open' WHEN batch.finished_at IS NULL AND batch.id IS NOT NULL THEN 'running'
            ELSE coalesce(batch.outcome, job.status, 'gone') END::text, edge.if_failed::text
    FROM pgqueue_edge AS edge
    LEFT JOIN pgqueue_batch AS batch ON batch.id = edge.parent_id
    LEFT JOIN LATERAL (
        SELECT one.task_path, one.status FROM pgqueue_job AS one WHERE one.id = edge.parent_id
    ) AS job ON true
    WHERE edge.child_id = pgqueue_parents.id ORDER BY edge.parent_id
$$;
