-- The first tenants that have live jobs, in their order. Each costs one probe of an index, in which jobs without a
-- tenant are not.
WITH RECURSIVE found (tenant, number) AS (
    SELECT (
        SELECT job.tenant FROM pgqueue_job_live AS job WHERE job.tenant IS NOT NULL ORDER BY job.tenant LIMIT 1
    ), 1
    UNION ALL
    SELECT (
        SELECT job.tenant FROM pgqueue_job_live AS job WHERE job.tenant > found.tenant ORDER BY job.tenant LIMIT 1
    ), found.number + 1
    FROM found WHERE found.tenant IS NOT NULL AND found.number < %(most)s
)
SELECT found.tenant FROM found WHERE found.tenant IS NOT NULL
