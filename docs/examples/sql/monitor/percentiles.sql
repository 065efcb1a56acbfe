WITH class AS (
    SELECT stat.task_path, class.number, sum(class.jobs) AS jobs
    FROM pgqueue_stat AS stat
    CROSS JOIN unnest(stat.run_histogram) WITH ORDINALITY AS class (jobs, number)
    WHERE stat.minute > clock_timestamp() - interval '1 hour'
    GROUP BY stat.task_path, class.number
), counted AS (
    SELECT task_path, number,
        sum(jobs) OVER (PARTITION BY task_path ORDER BY number) AS so_far,
        sum(jobs) OVER (PARTITION BY task_path) AS total
    FROM class
)
SELECT task_path, total AS attempts,
    0.001 * 2 ^ (min(number) FILTER (WHERE so_far >= 0.50 * total) - 1) AS p50,
    0.001 * 2 ^ (min(number) FILTER (WHERE so_far >= 0.95 * total) - 1) AS p95,
    0.001 * 2 ^ (min(number) FILTER (WHERE so_far >= 0.99 * total) - 1) AS p99
FROM counted
WHERE total > 0
GROUP BY task_path, total
ORDER BY task_path;
