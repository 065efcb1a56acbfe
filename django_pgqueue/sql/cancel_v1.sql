-- Cancel jobs: those that have not started end at once, and running ones are asked to stop. Returns the
-- number of changed rows. Race: a job may be claimed or finished between the statements, so the rows are
-- locked first, in the order of id (as in every function that locks several rows, so that two such functions
-- never deadlock). p_reason: why the jobs that have not started are cancelled, if nobody has asked for it. What waits for
-- them may be cancelled, too (pgqueue_settle_v1), but is not counted.
CREATE FUNCTION pgqueue_cancel_v1(p_ids bigint[], p_reason text DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    cancelled integer;
    asked integer;
    freed text[];
    marked pgqueue_ended_v1[];
BEGIN
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) ORDER BY job.id FOR UPDATE;

    SELECT gone.dropped, gone.freed, gone.marked INTO cancelled, freed, marked
    FROM pgqueue_drop_v1(p_ids, CASE WHEN p_reason IS NOT NULL THEN array_fill(p_reason, ARRAY[cardinality(p_ids)]) END)
        AS gone;
    IF marked IS NOT NULL THEN
        PERFORM pgqueue_settle_v1(marked);
    END IF;
    IF freed IS NOT NULL THEN
        PERFORM pgqueue_release_v1(freed);  -- one of them may have been the one that the others waited behind
    END IF;

    WITH running AS (
        UPDATE pgqueue_job_live AS job SET cancel_requested_at = clock_timestamp()
        WHERE job.id = ANY (p_ids) AND job.status = 'running' AND job.cancel_requested_at IS NULL
        RETURNING job.id
    )
    SELECT count(pg_notify(pgqueue_channel_v1(), 'cancel ' || running.id)) INTO asked FROM running;
    RETURN cancelled + asked;
END $$;
