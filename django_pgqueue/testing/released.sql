SELECT id FROM pgqueue_job_live
WHERE parents IS NOT NULL AND status = 'pending' AND run_after <= clock_timestamp() ORDER BY id
