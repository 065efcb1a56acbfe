-- A single statement (``Session.run``).
SELECT worker.drain <> '', ARRAY(
    SELECT job.id FROM pgqueue_job_live AS job
    WHERE job.status = 'running' AND job.worker = worker.id AND job.cancel_requested_at IS NOT NULL
) FROM pgqueue_worker AS worker WHERE worker.id = %s
