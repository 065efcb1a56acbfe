-- The jobs in the wait queues of a limit's keys, counted up to a limit. Limits of queues and of everything have none.
SELECT count(*) FROM (
    (SELECT FROM pgqueue_job_live AS job
    WHERE job.limit_key = pgqueue_limit.name
        AND job.status IN ('pending', 'retry', 'blocked') AND job.wait_position IS NOT NULL
    LIMIT %s)
    UNION ALL
    (SELECT FROM pgqueue_job_live AS job
    WHERE job.limit_key > pgqueue_limit.name || '/' AND job.limit_key < pgqueue_limit.name || '0'
        AND job.status IN ('pending', 'retry', 'blocked') AND job.wait_position IS NOT NULL
    LIMIT %s)
) AS part
