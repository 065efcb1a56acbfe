-- The kept jobs, by status, each up to a limit. The index has one range for each queue and status.
SELECT kind.status, part.number
FROM (VALUES ('done'), ('failed'), ('cancelled')) AS kind (status) CROSS JOIN LATERAL (
    SELECT count(*) AS number FROM (
        SELECT FROM kept CROSS JOIN LATERAL (
            SELECT FROM pgqueue_job_kept AS job
            WHERE job.queue_name = kept.queue_name AND job.status = kind.status
            ORDER BY job.finished_at LIMIT %(most)s
        ) AS job LIMIT %(most)s
    ) AS found
) AS part
