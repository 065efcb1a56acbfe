-- The queues that have jobs on the kept leaf: one probe of its index for each. Statements that need them
-- follow, and read them FROM kept.
WITH RECURSIVE probed AS (
    (SELECT job.queue_name FROM pgqueue_job_kept AS job ORDER BY job.queue_name LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.queue_name FROM pgqueue_job_kept AS job
        WHERE job.queue_name > probed.queue_name ORDER BY job.queue_name LIMIT 1
    ) FROM probed WHERE probed.queue_name IS NOT NULL
), kept AS (
    SELECT probed.queue_name FROM probed WHERE probed.queue_name IS NOT NULL
)
