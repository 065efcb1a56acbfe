-- The running and the blocked jobs, each up to a limit. Each kind of blocked jobs has an index of its own, as in
-- _pgqueue_depth: those of limit keys, of paused tasks, and those that wait for others.
SELECT 'running', count(*) FROM (
    SELECT FROM pgqueue_job_live AS job WHERE job.status = 'running' ORDER BY job.worker LIMIT %(most)s
) AS running
UNION ALL
SELECT 'blocked', count(*) FROM (
    (SELECT FROM pgqueue_job_live AS job
    WHERE job.status = 'blocked' AND job.wait_position IS NOT NULL AND NOT starts_with(job.waiting_reason, 'paused')
    ORDER BY job.limit_key LIMIT %(most)s)
    UNION ALL
    (SELECT FROM pgqueue_job_live AS job
    WHERE job.status = 'blocked' AND starts_with(job.waiting_reason, 'paused')
    ORDER BY job.task_path, job.id LIMIT %(most)s)
    UNION ALL
    (SELECT FROM pgqueue_job_live AS job
    WHERE job.status = 'blocked' AND starts_with(job.waiting_reason, 'waits for job')
    ORDER BY job.id LIMIT %(most)s)
) AS blocked
