-- Jobs with parents have come back from history: block those that still wait for some of them.
--
-- Race: such a parent ends at this moment. It deletes the edge, and this waits for its commit. If this is first, the end
-- of the parent waits for the lock of the edge, and then sees the job.
CREATE FUNCTION pgqueue_hold_back_v1(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM pgqueue_edge AS edge WHERE edge.child_id = ANY (p_ids)
    ORDER BY edge.parent_id, edge.child_id FOR KEY SHARE;
    UPDATE pgqueue_job_live AS job SET status = 'blocked', wait_position = NULL, waiting_reason = pgqueue_wait_reason_v1(waits.parents)
    FROM (
        SELECT edge.child_id, array_agg(edge.parent_id) AS parents FROM pgqueue_edge AS edge
        WHERE edge.child_id = ANY (p_ids) GROUP BY edge.child_id
    ) AS waits
    WHERE job.id = waits.child_id AND job.status IN ('pending', 'retry');
END $$;
