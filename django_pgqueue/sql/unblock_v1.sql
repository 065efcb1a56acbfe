-- Let those of the jobs run that wait for nothing any more. Each has lost an edge, in this transaction or before.
--
-- Race: the last two parents of a child end at once. Neither sees that the other one has deleted its edge, and both would
-- leave the child to the other. So who leaves it to others locks, until its commit, a row that proves that there are
-- others: an edge that stands, that of the youngest parent, because it probably ends last. Who deletes that edge waits
-- for the lock, and its next statement sees everything. If others are deleting all that is left, all of them queue for
-- the row of the child, and the last one sees none. This needs a new snapshot for each statement. A cancel under
-- REPEATABLE READ fails with a serialization error instead, because it tries to lock an edge that is gone.
--
-- A job with a limit key joins its line at the end. A job whose task is paused is put aside by the claim. A later
-- run_after stays, and so does the time when the job expires.
CREATE FUNCTION pgqueue_unblock_v1(p_ids bigint[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ripe bigint[];
    now timestamptz;
    freed integer;
BEGIN
    ripe := ARRAY(
        SELECT DISTINCT child.id FROM unnest(p_ids) AS child (id)
        LEFT JOIN LATERAL (
            SELECT true AS stands FROM pgqueue_edge AS edge WHERE edge.child_id = child.id
            ORDER BY -edge.parent_id LIMIT 1 FOR KEY SHARE SKIP LOCKED
        ) AS other ON true
        WHERE other.stands IS NULL);
    IF ripe = '{}' THEN
        RETURN 0;
    END IF;
    ripe := pgqueue_lock_children_v1(ripe);
    now := clock_timestamp();
    UPDATE pgqueue_job_live AS job SET
        status = CASE WHEN job.attempts > 0 THEN 'retry' ELSE 'pending' END,
        run_after = greatest(job.run_after, now), waiting_reason = '',
        wait_position = CASE WHEN job.limit_key IS NOT NULL AND job.run_after <= now THEN nextval('pgqueue_job_id_seq') END
    WHERE job.id = ANY (ripe) AND starts_with(job.waiting_reason, 'waits for job')
        AND (
            SELECT edge.parent_id FROM pgqueue_edge AS edge WHERE edge.child_id = job.id
            ORDER BY -edge.parent_id LIMIT 1) IS NULL;
    GET DIAGNOSTICS freed = ROW_COUNT;
    RETURN freed;
END $$;
