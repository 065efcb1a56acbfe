-- The live jobs by status, each up to a limit. The index of the claim does not separate retries from others, so as many
-- more of its jobs are counted as there are retries. NULL pending jobs: too many retries hide them.
WITH retrying AS (
    SELECT count(*) AS jobs FROM (
        -- Not status = 'retry': to find these, the planner may read the index of the claim, which has many others.
        SELECT FROM pgqueue_job_live AS job
        WHERE job.status IN ('retry', 'blocked') AND job.status > 'blocked' LIMIT %(most)s
    ) AS part
), claimable AS (
    SELECT count(*) AS jobs FROM (
        SELECT FROM pgqueue_job_live AS job
        WHERE job.status IN ('pending', 'retry') ORDER BY job.queue_name
        LIMIT %(most)s + (SELECT jobs FROM retrying)
    ) AS part
)
SELECT 'pending', CASE WHEN retrying.jobs < %(most)s OR claimable.jobs = retrying.jobs
    THEN claimable.jobs - retrying.jobs END
FROM claimable, retrying
UNION ALL
SELECT 'retry', retrying.jobs FROM retrying
UNION ALL
SELECT 'running', count(*) FROM (
    SELECT FROM pgqueue_job_live AS job WHERE job.status = 'running' ORDER BY job.worker LIMIT %(most)s
) AS running
UNION ALL
SELECT 'blocked', count(*) FROM (
    SELECT FROM pgqueue_job_live AS job WHERE job.status = 'blocked' LIMIT %(most)s
) AS blocked
