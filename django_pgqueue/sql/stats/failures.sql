-- Add at most p_limit notes of failed attempts to their groups and to the counts of the groups, and return how many.
-- Of more than p_most kinds of failures at once, those with the fewest attempts are dropped: a fingerprint that differs
-- for each job must not fill the tables.
--
-- A group that is muted stays so until it changes: until a failure comes from a task or version that is not known for
-- it, or a day after the one before. Race: a user mutes it at the same time. Both lock its row, so the mute is either
-- there to be lifted, or begins after these failures.
CREATE FUNCTION _pgqueue_fold_failures(p_most integer, p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    folded integer;
BEGIN
    -- Race: two calls would lock groups in different orders.
    IF NOT _pgqueue_on_duty('failures') THEN
        RETURN 0;
    END IF;
    WITH taken AS (
        DELETE FROM pgqueue_failure_note AS note WHERE note.id = ANY (ARRAY(
            SELECT old.id FROM pgqueue_failure_note AS old ORDER BY old.id LIMIT p_limit
        )) RETURNING note.*
    ), kinds AS (
        SELECT taken.fingerprint, sum(taken.failed) AS failed, sum(taken.retried) AS retried,
            min(taken.at) AS first_seen, max(taken.at) AS last_seen, array_agg(DISTINCT taken.task_path) AS tasks,
            array_remove(array_agg(DISTINCT taken.version), '') AS versions, max(taken.id) AS newest
        FROM taken GROUP BY 1 ORDER BY sum(taken.failed + taken.retried) DESC, max(taken.at) DESC LIMIT p_most
    ), groups AS (
        INSERT INTO pgqueue_failure_group AS known (
            fingerprint, error_class, message, traceback, sample_job, failed, retried, first_seen, last_seen, tasks,
            versions
        )
        SELECT kinds.fingerprint, taken.error_class, taken.message, taken.traceback, taken.job_id, kinds.failed,
            kinds.retried, kinds.first_seen, kinds.last_seen, kinds.tasks[:100], kinds.versions[:50]
        FROM kinds JOIN taken ON taken.id = kinds.newest
        ON CONFLICT (fingerprint) DO UPDATE SET
            error_class = excluded.error_class, message = excluded.message, traceback = excluded.traceback,
            sample_job = excluded.sample_job,
            failed = known.failed + excluded.failed, retried = known.retried + excluded.retried,
            first_seen = least(known.first_seen, excluded.first_seen),
            last_seen = greatest(known.last_seen, excluded.last_seen),
            -- The first hundred tasks, and the last fifty versions.
            tasks = CASE WHEN excluded.tasks <@ known.tasks THEN known.tasks ELSE (known.tasks || ARRAY(
                SELECT unnest(excluded.tasks) EXCEPT SELECT unnest(known.tasks)))[:100] END,
            versions = CASE WHEN excluded.versions <@ known.versions THEN known.versions ELSE (ARRAY(
                SELECT unnest(excluded.versions) EXCEPT SELECT unnest(known.versions)) || known.versions)[:50] END,
            (muted_at, muted_by, is_news) = (
                SELECT CASE WHEN NOT is_changed THEN known.muted_at END,
                    CASE WHEN is_changed THEN '' ELSE known.muted_by END,
                    known.is_news OR is_changed AND known.muted_at IS NOT NULL
                FROM (SELECT excluded.first_seen > known.last_seen + interval '1 day'
                    OR NOT excluded.tasks <@ known.tasks AND cardinality(known.tasks) < 100
                    OR NOT excluded.versions <@ known.versions AS is_changed) AS change)
    ), counts AS (
        INSERT INTO pgqueue_failure_count AS counted (
            span, start, fingerprint, task_path, queue_name, version, failed, retried
        )
        SELECT level.span, level.start, taken.fingerprint, taken.task_path, taken.queue_name, taken.version,
            sum(taken.failed), sum(taken.retried)
        FROM taken JOIN kinds ON kinds.fingerprint = taken.fingerprint CROSS JOIN LATERAL (VALUES
            ('quarter', date_bin('15 minutes', taken.at, 'epoch')),
            ('hour', date_bin('1 hour', taken.at, 'epoch')),
            ('day', date_bin('1 day', taken.at, 'epoch'))
        ) AS level (span, start)
        GROUP BY 1, 2, 3, 4, 5, 6
        ON CONFLICT (span, start, fingerprint, task_path, queue_name, version) DO UPDATE SET
            failed = counted.failed + excluded.failed, retried = counted.retried + excluded.retried
    )
    SELECT count(*) INTO folded FROM taken;
    RETURN folded;
END $$;

-- Return the groups of failures that are new, have changed while they were muted, or have more jobs that failed for
-- good, and note that this is reported now. Muted groups are noted, but not returned.
--
-- Race: maintenance adds failures to groups at this moment, and locks them in another order. Then this returns nothing,
-- and the next call has all of it.
CREATE FUNCTION _pgqueue_tell_failures(p_limit integer) RETURNS TABLE (
    fingerprint text, error_class text, message text, tasks text[], sample_job bigint, is_new boolean,
    more_failed bigint
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT _pgqueue_on_duty('failures') THEN
        RETURN;
    END IF;
    RETURN QUERY WITH unreported AS (
        SELECT one.fingerprint, one.is_news, one.alerted FROM pgqueue_failure_group AS one
        WHERE one.is_news OR one.alerted <> one.failed
    ), reported AS (
        UPDATE pgqueue_failure_group AS one SET alerted = one.failed, is_news = false FROM unreported
        WHERE one.fingerprint = unreported.fingerprint
        RETURNING one.fingerprint, one.error_class, one.message, one.tasks, one.sample_job, unreported.is_news,
            one.failed - unreported.alerted AS more_failed, one.muted_at
    )
    SELECT reported.fingerprint::text, reported.error_class::text, reported.message::text, reported.tasks,
        reported.sample_job, reported.is_news, reported.more_failed
    FROM reported WHERE reported.muted_at IS NULL
    ORDER BY reported.more_failed DESC, reported.fingerprint LIMIT p_limit;
END $$;
