-- Add at most p_limit rows of minutes that are over to the sums (stat_rollup_v1.sql), and return how many. A minute
-- counts as over one minute after its end: a worker adds its counts every ten seconds.
--
-- Race: a worker adds to a minute while it is rolled up. The row that is taken is locked and deleted, so the worker
-- waits, finds no row any more, and inserts another one, which a later call takes. If the worker was first, its row
-- is skipped here. Nothing is locked that a worker needs, except the rows that are taken.
CREATE FUNCTION pgqueue_roll_up_v1(p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    before timestamptz := clock_timestamp() - interval '2 minutes';
    rolled integer;
BEGIN
    -- Race: two calls would lock rows of the sums in different orders.
    IF NOT pgqueue_on_duty_v1('statistics') THEN
        RETURN 0;
    END IF;
    WITH taken AS (
        DELETE FROM pgqueue_stat AS stat WHERE stat.id = ANY (ARRAY(
            SELECT past.id FROM pgqueue_stat AS past WHERE NOT past.rolled_up AND past.minute < before
            ORDER BY past.minute LIMIT p_limit FOR UPDATE SKIP LOCKED
        )) RETURNING stat.*
    ), kept AS (
        INSERT INTO pgqueue_stat AS stat (
            minute, rolled_up, queue_name, task_path, done, failed, retried, cancelled, wait_histogram,
            run_histogram, wait_seconds, run_seconds
        )
        SELECT taken.minute, true, taken.queue_name, taken.task_path, taken.done, taken.failed, taken.retried,
            taken.cancelled, taken.wait_histogram, taken.run_histogram, taken.wait_seconds, taken.run_seconds
        FROM taken
        ON CONFLICT (minute, queue_name, task_path, rolled_up) DO UPDATE SET
            done = stat.done + excluded.done,
            failed = stat.failed + excluded.failed,
            retried = stat.retried + excluded.retried,
            cancelled = stat.cancelled + excluded.cancelled,
            wait_histogram = pgqueue_add_histograms_v1(stat.wait_histogram, excluded.wait_histogram),
            run_histogram = pgqueue_add_histograms_v1(stat.run_histogram, excluded.run_histogram),
            wait_seconds = stat.wait_seconds + excluded.wait_seconds,
            run_seconds = stat.run_seconds + excluded.run_seconds
    ), parts AS (
        SELECT level.span, level.start, taken.queue_name, level.task_path, taken.done, taken.failed, taken.retried,
            taken.cancelled, taken.wait_histogram, taken.run_histogram, taken.wait_seconds, taken.run_seconds
        FROM taken CROSS JOIN LATERAL (VALUES
            ('minute', taken.minute, ''),
            ('quarter', date_bin('15 minutes', taken.minute, 'epoch'), ''),
            ('quarter', date_bin('15 minutes', taken.minute, 'epoch'), taken.task_path),
            ('hour', date_bin('1 hour', taken.minute, 'epoch'), ''),
            ('hour', date_bin('1 hour', taken.minute, 'epoch'), taken.task_path),
            ('day', date_bin('1 day', taken.minute, 'epoch'), ''),
            ('day', date_bin('1 day', taken.minute, 'epoch'), taken.task_path),
            ('total', 'epoch', taken.task_path)
        ) AS level (span, start, task_path)
    ), classes AS (
        SELECT parts.span, parts.start, parts.queue_name, parts.task_path, pair.place,
            sum(pair.waited) AS waited, sum(pair.ran) AS ran
        FROM parts,
            unnest(parts.wait_histogram, parts.run_histogram) WITH ORDINALITY AS pair (waited, ran, place)
        GROUP BY 1, 2, 3, 4, 5
    ), histograms AS (
        SELECT classes.span, classes.start, classes.queue_name, classes.task_path,
            array_agg(coalesce(classes.waited, 0)::bigint ORDER BY classes.place) AS waited,
            array_agg(coalesce(classes.ran, 0)::bigint ORDER BY classes.place) AS ran
        FROM classes GROUP BY 1, 2, 3, 4
    ), sums AS (
        SELECT parts.span, parts.start, parts.queue_name, parts.task_path, sum(parts.done) AS done,
            sum(parts.failed) AS failed, sum(parts.retried) AS retried, sum(parts.cancelled) AS cancelled,
            sum(parts.wait_seconds) AS wait_seconds, sum(parts.run_seconds) AS run_seconds
        FROM parts GROUP BY 1, 2, 3, 4
    ), added AS (
        INSERT INTO pgqueue_stat_rollup AS total (
            span, start, queue_name, task_path, done, failed, retried, cancelled, wait_histogram, run_histogram,
            wait_seconds, run_seconds
        )
        SELECT sums.span, sums.start, sums.queue_name, sums.task_path, sums.done, sums.failed, sums.retried,
            sums.cancelled, coalesce(histograms.waited, '{}'), coalesce(histograms.ran, '{}'), sums.wait_seconds,
            sums.run_seconds
        FROM sums LEFT JOIN histograms USING (span, start, queue_name, task_path)
        ON CONFLICT (span, start, queue_name, task_path) DO UPDATE SET
            done = total.done + excluded.done,
            failed = total.failed + excluded.failed,
            retried = total.retried + excluded.retried,
            cancelled = total.cancelled + excluded.cancelled,
            wait_histogram = pgqueue_add_histograms_v1(total.wait_histogram, excluded.wait_histogram),
            run_histogram = pgqueue_add_histograms_v1(total.run_histogram, excluded.run_histogram),
            wait_seconds = total.wait_seconds + excluded.wait_seconds,
            run_seconds = total.run_seconds + excluded.run_seconds,
            updated_at = clock_timestamp()
    )
    SELECT count(*) INTO rolled FROM taken;
    RETURN rolled;
END $$;
