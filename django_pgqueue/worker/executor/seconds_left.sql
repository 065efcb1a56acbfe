SELECT id, lease, extract(epoch FROM deadline - clock_timestamp())::double precision
FROM pgqueue_job_live WHERE id = ANY(%s::bigint[]) AND deadline IS NOT NULL
