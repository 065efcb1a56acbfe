SELECT id, lease FROM pgqueue_job_live
WHERE worker = %s AND status = 'running' AND NOT id = ANY (%s::bigint[])
