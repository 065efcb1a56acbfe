SELECT id FROM pgqueue_job_live WHERE id = ANY (%s::bigint[]) AND deadline > clock_timestamp()
