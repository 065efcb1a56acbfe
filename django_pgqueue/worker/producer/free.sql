SELECT id, attempts, crash_count FROM pgqueue_job_live
WHERE id = ANY (%s::bigint[]) AND status || '' IN ('pending', 'retry')
