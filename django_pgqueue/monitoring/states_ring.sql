-- Some jobs of the ring of history, by status: all of them, if there are no more than the limit.
SELECT read.status, count(*) FROM (
    SELECT job.status FROM pgqueue_job AS job
    WHERE job.shelf BETWEEN 1 AND 8 ORDER BY job.finished_at DESC LIMIT %(most)s
) AS read GROUP BY read.status
