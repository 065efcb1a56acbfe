-- The live jobs that hold a slot of a limit key, stand in its line, or have a unique key. Each part has the
-- condition of an index.
SELECT job.id FROM pgqueue_job_live AS job WHERE job.limit_key = %s AND job.status = 'running'
UNION ALL
SELECT job.id FROM pgqueue_job_live AS job WHERE job.limit_key = %s AND job.wait_position IS NOT NULL
    AND job.status IN ('pending', 'retry', 'blocked')
UNION ALL
SELECT job.id FROM pgqueue_job_live AS job WHERE job.unique_key = %s AND job.unique_scope = 'live'
UNION ALL
SELECT job.id FROM pgqueue_job_live AS job WHERE job.unique_key = %s AND job.unique_scope = 'waiting'
    AND job.status IN ('pending', 'retry', 'blocked')
