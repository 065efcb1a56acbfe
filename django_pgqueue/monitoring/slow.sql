-- The running job of each task that has run for the longest time, if that is long, and how long the attempts of the
-- task ran. Follows the statistics of a span, which are read once for all of these tasks.
, longest AS MATERIALIZED (
    SELECT DISTINCT ON (running.task_path) running.task_path, running.id, running.seconds
    FROM (
        SELECT job.task_path, job.id,
            extract(epoch FROM statement_timestamp() - job.last_attempted_at)::float8 AS seconds
        FROM pgqueue_job_live AS job WHERE job.status = 'running' LIMIT %(most)s
    ) AS running
    WHERE running.seconds > %(least)s
    ORDER BY running.task_path, running.seconds DESC
)
SELECT longest.task_path, longest.id, longest.seconds, ARRAY[{run_histogram_sums}]
FROM longest JOIN part ON part.task_path = longest.task_path
GROUP BY 1, 2, 3
