SELECT queue_name, priority, run_after::text, id, 0.0, group_key, task_path FROM pgqueue_job_live
WHERE id = ANY (%s::bigint[]) AND status || '' IN ('pending', 'retry') AND run_after <= clock_timestamp()
ORDER BY priority DESC, wait_position
