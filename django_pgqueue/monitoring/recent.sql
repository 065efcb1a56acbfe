-- The jobs that ended last, whoever ran them: WINDOW of the ring of history, which has an index on the time, and of the
-- kept failed jobs as many as SOME for each queue. kept_queues.sql comes before this.
, recent AS (
    (SELECT job.id, job.task_path, job.queue_name, job.status, job.finished_at, job.duration, job.worker, job.attempts,
        job.parents, job.batch, job.context ? 'user' AS has_user
    FROM pgqueue_job AS job WHERE job.shelf > 0 AND job.shelf < 9 ORDER BY job.finished_at DESC LIMIT %(window)s)
    UNION ALL
    SELECT failed.* FROM kept CROSS JOIN LATERAL (
        SELECT job.id, job.task_path, job.queue_name, job.status, job.finished_at, job.duration, job.worker,
            job.attempts, job.parents, job.batch, job.context ? 'user' AS has_user
        FROM pgqueue_job_kept AS job WHERE job.queue_name = kept.queue_name AND job.status = 'failed'
        ORDER BY job.finished_at DESC LIMIT %(some)s
    ) AS failed
)
