-- Delete at most p_limit counts of each span of failures that nobody reads any more, groups that were not seen for
-- p_keep, and, if there are more than p_most groups, those that were not seen for longest. Return the largest number.
-- Quarters of an hour are kept for two days, hours for as long as charts show them, and days for p_keep.
CREATE FUNCTION pgqueue_forget_failures_v1(p_keep interval, p_most integer, p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    level record;
    batch integer;
    forgotten integer := 0;
    gone text[];
BEGIN
    IF NOT pgqueue_on_duty_v1('failures') THEN
        RETURN 0;
    END IF;
    FOR level IN VALUES
        ('quarter', statement_timestamp() - interval '2 days'),
        ('hour', statement_timestamp() - least(p_keep, interval '32 days')),
        ('day', statement_timestamp() - p_keep)
    LOOP
        DELETE FROM pgqueue_failure_count AS counted WHERE counted.id = ANY (ARRAY(
            SELECT old.id FROM pgqueue_failure_count AS old
            WHERE old.span = level.column1 AND old.start < level.column2
            ORDER BY old.start LIMIT p_limit
        ));
        GET DIAGNOSTICS batch = ROW_COUNT;
        forgotten := greatest(forgotten, batch);
    END LOOP;
    -- Race: a user mutes a group at the same time, and holds the lock of its row. It waits for the next call.
    gone := ARRAY(
        SELECT old.fingerprint FROM pgqueue_failure_group AS old
        WHERE old.last_seen < statement_timestamp() - p_keep OR old.fingerprint = ANY (ARRAY(
            SELECT many.fingerprint FROM pgqueue_failure_group AS many
            ORDER BY many.last_seen DESC, many.fingerprint OFFSET p_most))
        FOR UPDATE SKIP LOCKED);
    DELETE FROM pgqueue_failure_group AS one WHERE one.fingerprint = ANY (gone);
    DELETE FROM pgqueue_failure_count AS counted WHERE counted.fingerprint = ANY (gone);
    RETURN forgotten;
END $$;
