SELECT job.id, job.lease, job.cancel_requested_at IS NOT NULL, EXISTS (
    SELECT FROM pgqueue_stack AS asked
    WHERE asked.job_id = job.id AND asked.lease = job.lease AND asked.taken_at IS NULL)
FROM pgqueue_job_live AS job WHERE job.id = ANY (%s::bigint[]) AND job.status = 'running'
