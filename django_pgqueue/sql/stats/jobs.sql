-- Add the counts of a worker to the statistics by minute, queue and task. Histograms are passed as array
-- literals. Rows are always written in the same order, so that two workers never deadlock. A row that maintenance has
-- rolled up is not changed: later counts of that minute make another row, which is rolled up in turn.
CREATE FUNCTION _pgqueue_stat(
    p_minutes timestamptz[], p_queue_names text[], p_task_paths text[], p_done bigint[], p_failed bigint[],
    p_retried bigint[], p_cancelled bigint[], p_wait_histograms text[], p_run_histograms text[],
    p_wait_seconds double precision[], p_run_seconds double precision[]
) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO pgqueue_stat AS stat (
        minute, rolled_up, queue_name, task_path, done, failed, retried, cancelled, wait_histogram,
        run_histogram, wait_seconds, run_seconds
    )
    SELECT given.minute, false, given.queue_name, given.task_path, given.done, given.failed, given.retried,
        given.cancelled, given.wait_histogram::bigint[], given.run_histogram::bigint[], given.wait_seconds,
        given.run_seconds
    FROM unnest(
        p_minutes, p_queue_names, p_task_paths, p_done, p_failed, p_retried, p_cancelled, p_wait_histograms,
        p_run_histograms, p_wait_seconds, p_run_seconds
    ) AS given (
        minute, queue_name, task_path, done, failed, retried, cancelled, wait_histogram, run_histogram,
        wait_seconds, run_seconds
    )
    ORDER BY given.minute, given.queue_name, given.task_path
    ON CONFLICT (minute, queue_name, task_path, rolled_up) DO UPDATE SET
        done = stat.done + excluded.done,
        failed = stat.failed + excluded.failed,
        retried = stat.retried + excluded.retried,
        cancelled = stat.cancelled + excluded.cancelled,
        wait_histogram = _pgqueue_add_histograms(stat.wait_histogram, excluded.wait_histogram),
        run_histogram = _pgqueue_add_histograms(stat.run_histogram, excluded.run_histogram),
        wait_seconds = stat.wait_seconds + excluded.wait_seconds,
        run_seconds = stat.run_seconds + excluded.run_seconds
$$;

-- Add at most p_limit rows of past minutes to the sums (tables/maintenance.sql), and return how many. A minute is
-- past one minute after its end: a worker adds its counts every ten seconds.
--
-- Race: a worker adds to a minute while it is rolled up. The row that is taken is locked and deleted, so the worker
-- waits, finds no row any more, and inserts another one, which a later call takes. If the worker was first, its row
-- is skipped here. Nothing is locked that a worker needs, except the rows that are taken.
CREATE FUNCTION _pgqueue_roll_up(p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    before timestamptz := clock_timestamp() - interval '2 minutes';
    rolled integer;
BEGIN
    -- Race: two calls would lock rows of the sums in different orders.
    IF NOT _pgqueue_on_duty('statistics') THEN
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
            wait_histogram = _pgqueue_add_histograms(stat.wait_histogram, excluded.wait_histogram),
            run_histogram = _pgqueue_add_histograms(stat.run_histogram, excluded.run_histogram),
            wait_seconds = stat.wait_seconds + excluded.wait_seconds,
            run_seconds = stat.run_seconds + excluded.run_seconds
    ), parts AS (
        SELECT level.span, level.start, level.queue_name, level.task_path, taken.done, taken.failed, taken.retried,
            taken.cancelled, taken.wait_histogram, taken.run_histogram, taken.wait_seconds, taken.run_seconds
        FROM taken CROSS JOIN LATERAL (VALUES
            ('minute', taken.minute, '', ''),
            ('minute', taken.minute, taken.queue_name, ''),
            ('quarter', date_bin('15 minutes', taken.minute, 'epoch'), '', ''),
            ('quarter', date_bin('15 minutes', taken.minute, 'epoch'), taken.queue_name, ''),
            ('quarter', date_bin('15 minutes', taken.minute, 'epoch'), taken.queue_name, taken.task_path),
            ('hour', date_bin('1 hour', taken.minute, 'epoch'), '', ''),
            ('hour', date_bin('1 hour', taken.minute, 'epoch'), taken.queue_name, ''),
            ('hour', date_bin('1 hour', taken.minute, 'epoch'), taken.queue_name, taken.task_path),
            ('day', date_bin('1 day', taken.minute, 'epoch'), '', ''),
            ('day', date_bin('1 day', taken.minute, 'epoch'), taken.queue_name, ''),
            ('day', date_bin('1 day', taken.minute, 'epoch'), taken.queue_name, taken.task_path),
            ('total', 'epoch', taken.queue_name, taken.task_path)
        ) AS level (span, start, queue_name, task_path)
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
            wait_histogram = _pgqueue_add_histograms(total.wait_histogram, excluded.wait_histogram),
            run_histogram = _pgqueue_add_histograms(total.run_histogram, excluded.run_histogram),
            wait_seconds = total.wait_seconds + excluded.wait_seconds,
            run_seconds = total.run_seconds + excluded.run_seconds,
            updated_at = clock_timestamp()
    )
    SELECT count(*) INTO rolled FROM taken;
    RETURN rolled;
END $$;

-- Add two histograms element by element; the shorter one is filled up with zeros.
CREATE FUNCTION _pgqueue_add_histograms(p_one bigint[], p_other bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(coalesce(one, 0) + coalesce(other, 0) ORDER BY place)
    FROM unnest(p_one, p_other) WITH ORDINALITY AS pair (one, other, place)
$$;

-- Delete at most p_limit rows of each span of statistics and failures that no page reads any more, the total of a task
-- that has not run for p_keep, the groups of failures that were not seen for p_keep, and, if there are more than
-- p_groups, the groups that were not seen for longest. Return the number of minutes, sums or counts, whichever is
-- largest. Minutes and quarters of an hour are kept for as long as charts show them, as are the hours of failures; the
-- rest for p_keep. Minutes that are not in the sums yet remain, however old they are.
CREATE FUNCTION _pgqueue_forget_figures(p_keep interval, p_groups integer, p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    forgotten integer;
BEGIN
    IF NOT _pgqueue_on_duty('statistics') OR NOT _pgqueue_on_duty('failures') THEN
        RETURN 0;
    END IF;
    WITH minutes AS (
        DELETE FROM pgqueue_stat AS stat WHERE stat.id = ANY (ARRAY(
            SELECT old.id FROM pgqueue_stat AS old
            WHERE old.rolled_up AND old.minute < statement_timestamp() - interval '2 days'
            ORDER BY old.minute LIMIT p_limit
        )) RETURNING 1
    ), sums AS (
        DELETE FROM pgqueue_stat_rollup AS total WHERE total.id = ANY (ARRAY(
            SELECT old.id FROM (VALUES
                ('minute', interval '2 days'), ('quarter', interval '2 days'), ('hour', p_keep), ('day', p_keep)
            ) AS level (span, keep) CROSS JOIN LATERAL (
                SELECT one.id FROM pgqueue_stat_rollup AS one
                WHERE one.span = level.span AND one.start < statement_timestamp() - level.keep
                ORDER BY one.start LIMIT p_limit
            ) AS old
        )) RETURNING 1
    ), counts AS (
        DELETE FROM pgqueue_failure_count AS counted WHERE counted.id = ANY (ARRAY(
            SELECT old.id FROM (VALUES
                ('quarter', interval '2 days'), ('hour', least(p_keep, interval '32 days')), ('day', p_keep)
            ) AS level (span, keep) CROSS JOIN LATERAL (
                SELECT one.id FROM pgqueue_failure_count AS one
                WHERE one.span = level.span AND one.start < statement_timestamp() - level.keep
                ORDER BY one.start LIMIT p_limit
            ) AS old
        )) RETURNING 1
    ), depths AS (
        DELETE FROM pgqueue_depth AS depth WHERE (depth.queue_name, depth.minute) IN (
            (SELECT old.queue_name, old.minute FROM pgqueue_depth AS old
            WHERE old.minute < statement_timestamp() - p_keep ORDER BY old.minute LIMIT p_limit)
            UNION ALL
            -- Only the rows of a day, so that what stays is not read again and again.
            (SELECT old.queue_name, old.minute FROM pgqueue_depth AS old
            WHERE old.minute < statement_timestamp() - interval '2 days'
                AND old.minute > statement_timestamp() - interval '3 days'
                AND old.minute <> date_bin('15 minutes', old.minute, 'epoch')
            ORDER BY old.minute LIMIT p_limit)
        ) RETURNING 1
    )
    SELECT greatest((SELECT count(*) FROM minutes), (SELECT count(*) FROM sums), (SELECT count(*) FROM counts),
        (SELECT count(*) FROM depths))
    INTO forgotten;
    DELETE FROM pgqueue_stat_rollup AS total
    WHERE total.span = 'total' AND total.start = 'epoch' AND total.updated_at < statement_timestamp() - p_keep;
    WITH gone AS (
        DELETE FROM pgqueue_failure_group AS one WHERE one.fingerprint = ANY (ARRAY(
            SELECT old.fingerprint FROM pgqueue_failure_group AS old
            WHERE old.last_seen < statement_timestamp() - p_keep OR old.fingerprint = ANY (ARRAY(
                SELECT many.fingerprint FROM pgqueue_failure_group AS many
                ORDER BY many.last_seen DESC, many.fingerprint OFFSET p_groups))
            -- Race: a user mutes a group at the same time, and holds the lock of its row. It waits for the next call.
            FOR UPDATE SKIP LOCKED
        )) RETURNING one.fingerprint
    )
    DELETE FROM pgqueue_failure_count AS counted WHERE counted.fingerprint = ANY (ARRAY(SELECT fingerprint FROM gone));
    RETURN forgotten;
END $$;
