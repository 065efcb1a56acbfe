-- The names of all queues. Names of the kept leaf come from kept_queues.sql, which stands before this. For
-- claimable and blocked jobs, each queue costs one probe of an index; for running jobs, their index is read once.
SELECT kept.queue_name FROM kept
UNION
SELECT _pgqueue_queues_with('claimable')
UNION
SELECT job.queue_name FROM pgqueue_job_live AS job WHERE job.status = 'running'
UNION
SELECT _pgqueue_queues_with('blocked')
UNION
SELECT queue.name FROM pgqueue_queue AS queue
UNION
SELECT stat.queue_name FROM pgqueue_stat AS stat
WHERE NOT stat.rolled_up AND stat.minute >= statement_timestamp() - interval '1 day'
UNION
SELECT total.queue_name FROM pgqueue_stat_rollup AS total
WHERE total.span = 'hour' AND total.task_path = '' AND total.queue_name <> ''
    AND total.start >= statement_timestamp() - interval '1 day'
