-- A round of maintenance over at most p_limit batches that are not over, after the batch p_after: end those that have no live
-- member. Returns the last batch that was looked at (NULL: there are no more), how many it looked at, and how many ended.
--
-- This is for ends that were left to a session that did not come: a member that was added and rolled back,
-- a session that held the row for too long, and jobs that were deleted by hand.
CREATE FUNCTION pgqueue_repair_batches_v1(
    p_after bigint, p_limit integer, OUT looked integer, OUT reached bigint, OUT ended integer
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    stuck bigint[];
BEGIN
    looked := 0;
    ended := 0;
    IF NOT pgqueue_on_duty_v1('batches') THEN
        RETURN;
    END IF;
    SELECT count(*), CASE WHEN count(*) = p_limit THEN max(page.id) END, array_agg(page.id ORDER BY page.id) FILTER (
        WHERE NOT page.is_open AND (
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.batch = page.id ORDER BY -job.id LIMIT 1) IS NULL)
    INTO looked, reached, stuck
    FROM (
        SELECT batch.id, batch.is_open FROM pgqueue_batch AS batch
        WHERE batch.finished_at IS NULL AND batch.id > p_after ORDER BY batch.id LIMIT p_limit
    ) AS page;
    IF stuck IS NOT NULL THEN
        PERFORM pgqueue_settle_v1('{}', stuck);
        ended := (SELECT count(*) FROM pgqueue_batch AS batch WHERE batch.id = ANY (stuck) AND batch.finished_at IS NOT NULL);
    END IF;
END $$;
