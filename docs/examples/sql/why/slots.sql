SELECT worker.host, worker.pid, worker.slots, count(job.id) AS running,
    max(clock_timestamp() - job.last_attempted_at) AS longest
FROM pgqueue_worker AS worker
LEFT JOIN pgqueue_job_live AS job ON job.worker = worker.id AND job.status = 'running'
GROUP BY worker.id
ORDER BY worker.host, worker.pid;
