-- Count the jobs of each queue that failed in the last day and were not retried, up to %(most)s. The queues come from
-- kept_queues.sql, with which the statement begins. Each count takes one range scan of the kept leaf's index.
SELECT kept.queue_name, (
    SELECT count(*) FROM (
        SELECT FROM pgqueue_job_kept AS job
        WHERE job.queue_name = kept.queue_name AND job.status = 'failed'
            AND job.finished_at >= statement_timestamp() - interval '1 day'
        LIMIT %(most)s
    ) AS day
) FROM kept
