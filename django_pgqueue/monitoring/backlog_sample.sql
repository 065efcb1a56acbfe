-- The waiting jobs of a queue in about %(pages)s pages of the table, drawn at random.
WITH waiting AS MATERIALIZED (
    SELECT job.task_path, job.group_key, job.limit_key, job.args, job.kwargs
    FROM pgqueue_job_live AS job TABLESAMPLE SYSTEM (
        least(100, %(pages)s * 100.0 * current_setting('block_size')::integer
            / greatest(1, pg_relation_size('pgqueue_job_live')))
    )
    WHERE job.queue_name = %(queue)s AND job.status IN ('pending', 'retry', 'blocked')
)
