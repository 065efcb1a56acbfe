-- Add the counts of a worker to the statistics by minute, queue and task. Histograms are passed as array
-- literals. Rows are always written in the same order, so that two workers never deadlock. A row that maintenance has
-- rolled up is not changed: later counts of that minute make another row, which is rolled up in turn.
CREATE FUNCTION pgqueue_stat_v1(
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
        wait_histogram = pgqueue_add_histograms_v1(stat.wait_histogram, excluded.wait_histogram),
        run_histogram = pgqueue_add_histograms_v1(stat.run_histogram, excluded.run_histogram),
        wait_seconds = stat.wait_seconds + excluded.wait_seconds,
        run_seconds = stat.run_seconds + excluded.run_seconds
$$;
