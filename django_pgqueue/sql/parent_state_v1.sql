-- What has become of a job or a batch that others wait for: live (it is not over), done, failed, cancelled, dead (a batch
-- of which a failed member can no longer be retried), or gone (there is none). In one snapshot, a job that is just ending
-- is in one leaf.
CREATE FUNCTION pgqueue_parent_state_v1(p_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(
        (SELECT 'live' FROM pgqueue_job_live AS job WHERE job.id = p_id),
        (SELECT CASE
            WHEN batch.finished_at IS NULL THEN 'live'
            WHEN batch.outcome = 'failed' AND pgqueue_is_final_v1(batch.id, (
                SELECT sum(tally.failed) FROM pgqueue_tally AS tally WHERE tally.batch_id = batch.id)) THEN 'dead'
            ELSE batch.outcome END
            FROM pgqueue_batch AS batch WHERE batch.id = p_id),
        (SELECT job.status FROM pgqueue_job AS job WHERE job.id = p_id AND job.shelf <> 0),
        'gone')
$$;
