-- What a job waits for: a row for each job and batch that has to end before it, or has failed and holds it.
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

-- What has become of a job or a batch that others wait for: live (it is not over), done, failed, cancelled, dead (a
-- batch of which a failed member is not kept, so that no retry can make it succeed), or gone (there is none). In one
-- snapshot, a job that is just ending is in one leaf.
CREATE FUNCTION _pgqueue_parent_state(p_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(
        (SELECT 'live' FROM pgqueue_job_live AS job WHERE job.id = p_id),
        (SELECT CASE
            WHEN batch.finished_at IS NULL THEN 'live'
            WHEN batch.outcome = 'failed' AND (
                    SELECT count(*) FROM pgqueue_job_kept AS job WHERE job.batch = batch.id AND job.status = 'failed'
                ) < (SELECT sum(tally.failed) FROM pgqueue_tally AS tally WHERE tally.batch_id = batch.id) THEN 'dead'
            ELSE batch.outcome END
            FROM pgqueue_batch AS batch WHERE batch.id = p_id),
        (SELECT job.status FROM pgqueue_job AS job WHERE job.id = p_id AND job.shelf <> 0),
        'gone')
$$;

-- Lock the blocked ones of the jobs, and return them. Two that end the last parents of a child queue here.
--
-- Race: another session has the row, and keeps it for longer: a transaction of a user that is still open, or a cancel
-- that waits for an edge that the caller has locked. A worker that reports must not wait for long, and no deadlock may
-- arise, so after a while this takes only the others, and maintenance looks at the jobs that were left
-- (_pgqueue_repair_edges). It is a quarter of a second so that several such waits end before PostgreSQL searches for
-- deadlocks, which it does after one.
CREATE FUNCTION _pgqueue_lock_children(p_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms' AS $$
BEGIN
    RETURN ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) AND job.status = 'blocked'
        ORDER BY job.id FOR NO KEY UPDATE);
EXCEPTION WHEN lock_not_available THEN
    RETURN ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) AND job.status = 'blocked'
        ORDER BY job.id FOR NO KEY UPDATE SKIP LOCKED);
END $$;
