-- Which nets are needed: one cheap statement, since most installations need none. A finished batch counts, because it
-- will be deleted. EXISTS would drop the orders, which let the server read the indexes and not the table. The first
-- supervisor in a minute counts the live jobs, too.
SELECT EXISTS (SELECT FROM pgqueue_batch), (
    SELECT job.id FROM pgqueue_job_live AS job
    WHERE job.status = 'blocked' AND starts_with(job.waiting_reason, 'waits for job')
    ORDER BY job.id LIMIT 1
) IS NOT NULL, (
    SELECT job.limit_key FROM pgqueue_job_live AS job
    WHERE job.wait_position IS NOT NULL AND job.status IN ('pending', 'retry', 'blocked')
    ORDER BY job.limit_key LIMIT 1
) IS NOT NULL
FROM _pgqueue_count_depth()
