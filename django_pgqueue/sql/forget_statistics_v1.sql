-- Delete at most p_limit rows of each kind of statistics that nobody reads any more, and return the largest number.
-- Minutes and quarters of an hour are kept for as long as charts show them, hours and days for p_keep, and the total
-- of a task that has not run for p_keep. Minutes that are not in the sums yet remain, however old they are.
CREATE FUNCTION pgqueue_forget_statistics_v1(p_keep interval, p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    level record;
    batch integer;
    forgotten integer;
BEGIN
    IF NOT pgqueue_on_duty_v1('statistics') THEN
        RETURN 0;
    END IF;
    -- Variables and literals instead of conditions with volatile functions, which cannot bound an index scan.
    DELETE FROM pgqueue_stat AS stat WHERE stat.id = ANY (ARRAY(
        SELECT old.id FROM pgqueue_stat AS old
        WHERE old.rolled_up AND old.minute < statement_timestamp() - interval '2 days'
        ORDER BY old.minute LIMIT p_limit
    ));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    FOR level IN VALUES
        ('minute', statement_timestamp() - interval '2 days'),
        ('quarter', statement_timestamp() - interval '2 days'),
        ('hour', statement_timestamp() - p_keep),
        ('day', statement_timestamp() - p_keep)
    LOOP
        DELETE FROM pgqueue_stat_rollup AS total WHERE total.id = ANY (ARRAY(
            SELECT old.id FROM pgqueue_stat_rollup AS old
            WHERE old.span = level.column1 AND old.start < level.column2
            ORDER BY old.start LIMIT p_limit
        ));
        GET DIAGNOSTICS batch = ROW_COUNT;
        forgotten := greatest(forgotten, batch);
    END LOOP;
    DELETE FROM pgqueue_stat_rollup AS total
    WHERE total.span = 'total' AND total.start = 'epoch' AND total.updated_at < statement_timestamp() - p_keep;
    RETURN forgotten;
END $$;
