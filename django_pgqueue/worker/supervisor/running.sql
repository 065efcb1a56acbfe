SELECT task_path, extract(epoch FROM clock_timestamp() - last_attempted_at)::float8 FROM pgqueue_job_live
WHERE id = ANY (%s::bigint[]) AND status = 'running' ORDER BY last_attempted_at
