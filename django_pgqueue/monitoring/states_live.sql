-- The newest jobs that are not over, by status. Newest first, because dead rows are where jobs have been claimed.
SELECT newest.status, count(*) FROM (
    SELECT job.status FROM pgqueue_job_live AS job ORDER BY job.id DESC LIMIT %(most)s
) AS newest GROUP BY newest.status
