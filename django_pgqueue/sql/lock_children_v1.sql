-- Lock those of the jobs that are blocked, and return them. Two that end the last parents of a child queue here.
--
-- Race: another session has the row, and keeps it for longer: a transaction of a user that is still open, or a cancel that
-- waits for an edge that the caller has locked. A worker that reports must not wait for long, and no deadlock may arise.
-- So after a while this takes only the others, and maintenance looks at those that were left (repair_edges_v1.sql). It is a
-- quarter of a second so that several such waits are over before PostgreSQL looks for deadlocks, which it does after one.
CREATE FUNCTION pgqueue_lock_children_v1(p_ids bigint[]) RETURNS bigint[]
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
