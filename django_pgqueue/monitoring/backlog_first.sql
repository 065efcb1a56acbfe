-- The waiting jobs of a queue, up to a limit of jobs that a worker may claim now or later, and of jobs that are
-- blocked.
WITH waiting AS MATERIALIZED (
    (SELECT job.task_path, job.group_key, job.limit_key, job.args, job.kwargs FROM pgqueue_job_live AS job
    WHERE job.queue_name = %(queue)s AND job.status IN ('pending', 'retry') LIMIT %(most)s)
    UNION ALL
    (SELECT job.task_path, job.group_key, job.limit_key, job.args, job.kwargs FROM pgqueue_job_live AS job
    WHERE job.queue_name = %(queue)s AND job.status = 'blocked' LIMIT %(most)s)
)
