-- Count the attempts of the jobs in history, as workers count them: by the minute in which they were claimed.
CREATE TEMPORARY TABLE pgqueue_demo_stat AS
WITH ran AS (
    SELECT date_trunc('minute', job.last_attempted_at) AS minute, job.queue_name, job.task_path, job.status, job.attempts,
        job.duration,
        extract(epoch FROM job.last_attempted_at - job.run_after)::float8 AS waited,
        width_bucket(extract(epoch FROM job.last_attempted_at - job.run_after)::float8, %(bounds)s) AS wait_class,
        width_bucket(job.duration, %(bounds)s) AS run_class
    FROM pgqueue_job AS job
    WHERE job.shelf <> 0 AND job.queue_name = ANY (%(queues)s) AND job.last_attempted_at IS NOT NULL
)
SELECT part.minute AS start, part.queue_name, part.task_path,
    count(*) FILTER (WHERE part.status = 'done') AS done, count(*) FILTER (WHERE part.status = 'failed') AS failed,
    sum(part.attempts - 1) AS retried, 0::bigint AS cancelled,
    sum(part.waited * part.attempts) AS wait_seconds, sum(part.duration * part.attempts) AS run_seconds,
    ARRAY[{wait_counts}] AS wait_histogram, ARRAY[{run_counts}] AS run_histogram
FROM ran AS part GROUP BY 1, 2, 3
