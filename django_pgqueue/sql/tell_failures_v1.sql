-- Return the groups of failures that are new, have changed while they were muted, or have more jobs that failed for
-- good, and note that this is told now. Muted groups are noted, but not returned.
--
-- Race: maintenance adds failures to groups at this moment, and locks them in another order. Then this returns nothing, and
-- the next call has all of it.
CREATE FUNCTION pgqueue_tell_failures_v1(p_limit integer) RETURNS TABLE (
    fingerprint text, error_class text, message text, tasks text[], sample_job bigint, is_new boolean, more_failed bigint
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT pgqueue_on_duty_v1('failures') THEN
        RETURN;
    END IF;
    RETURN QUERY WITH untold AS (
        SELECT one.fingerprint, one.is_news, one.told FROM pgqueue_failure_group AS one
        WHERE one.is_news OR one.told <> one.failed
    ), told AS (
        UPDATE pgqueue_failure_group AS one SET told = one.failed, is_news = false FROM untold
        WHERE one.fingerprint = untold.fingerprint
        RETURNING one.fingerprint, one.error_class, one.message, one.tasks, one.sample_job, untold.is_news,
            one.failed - untold.told AS more_failed, one.muted_at
    )
    SELECT told.fingerprint::text, told.error_class::text, told.message::text, told.tasks, told.sample_job, told.is_news,
        told.more_failed
    FROM told WHERE told.muted_at IS NULL
    ORDER BY told.more_failed DESC, told.fingerprint LIMIT p_limit;
END $$;
