-- The tasks of running jobs, of the first and last %(window)s live jobs, and of jobs that ran within a day.
SELECT job.task_path FROM pgqueue_job_live AS job WHERE job.status = 'running'
UNION
(SELECT job.task_path FROM pgqueue_job_live AS job ORDER BY job.id LIMIT %(window)s)
UNION
(SELECT job.task_path FROM pgqueue_job_live AS job ORDER BY job.id DESC LIMIT %(window)s)
UNION
SELECT stat.task_path FROM pgqueue_stat AS stat
WHERE NOT stat.rolled_up AND stat.minute >= statement_timestamp() - interval '1 day'
UNION
SELECT total.task_path FROM pgqueue_stat_rollup AS total
WHERE total.span = 'hour' AND total.task_path <> '' AND total.start >= statement_timestamp() - interval '1 day'
