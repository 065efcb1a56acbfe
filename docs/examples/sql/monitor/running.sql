SELECT job.id, job.task_path, worker.host, worker.pid, job.deadline,
    clock_timestamp() - job.last_attempted_at AS running_for
FROM pgqueue_job_live AS job
LEFT JOIN pgqueue_worker AS worker ON worker.id = job.worker
WHERE job.status = 'running'
    AND job.last_attempted_at < clock_timestamp() - interval '15 minutes'
ORDER BY job.last_attempted_at;
