-- Cancel jobs: those that have not started end at once, and running ones are asked to stop. Returns the ids of the jobs
-- that changed. What waits for them may be cancelled, too (pgqueue_settle_v1), but is not returned. reason: why the jobs
-- that have not started are cancelled, if nobody has asked for it.
--
-- Race: a job may be claimed or finished between the statements, so the rows are locked first, in the order of id, as in
-- every function that locks several rows, so that two such functions never deadlock.
CREATE FUNCTION pgqueue_cancel(ids bigint[], reason text DEFAULT NULL) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    cancelled bigint[];
    asked bigint[];
    freed text[];
    marked pgqueue_ended_v1[];
BEGIN
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (ids) ORDER BY job.id FOR UPDATE;

    SELECT gone.dropped, gone.freed, gone.marked INTO cancelled, freed, marked
    FROM pgqueue_drop_v1(ids, CASE WHEN reason IS NOT NULL THEN array_fill(reason, ARRAY[cardinality(ids)]) END) AS gone;
    IF marked IS NOT NULL THEN
        PERFORM pgqueue_settle_v1(marked);
    END IF;
    IF freed IS NOT NULL THEN
        PERFORM pgqueue_release_v1(freed);  -- one of them may have been the one that the others waited behind
    END IF;

    WITH running AS (
        UPDATE pgqueue_job_live AS job SET cancel_requested_at = clock_timestamp()
        WHERE job.id = ANY (ids) AND job.status = 'running' AND job.cancel_requested_at IS NULL
        RETURNING job.id
    )
    SELECT array_agg(running.id) INTO asked FROM running;
    PERFORM pg_notify(pgqueue_channel_v1(), 'cancel ' || asking.id) FROM unnest(asked) AS asking (id);
    RETURN cancelled || asked;
END $$;
