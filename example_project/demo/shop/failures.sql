-- Note the failed attempts of the bulk, as their workers would have done, one row for each kind and quarter of an hour.
-- Maintenance adds them to the groups of failures (_pgqueue_fold_failures). Those of the stories were noted when they failed.
INSERT INTO pgqueue_failure_note (
    at, fingerprint, task_path, queue_name, version, failed, retried, job_id, error_class, message, traceback
)
SELECT max(attempt.at), attempt.fingerprint, attempt.task_path, attempt.queue_name, attempt.version,
    count(*) FILTER (WHERE attempt.is_final), count(*) FILTER (WHERE NOT attempt.is_final), max(attempt.id),
    attempt.name, max(attempt.message), attempt.traceback
FROM (
    SELECT job.id, job.task_path, job.queue_name, error.fingerprint, error.name, entry.value ->> 'message' AS message,
        error.traceback, coalesce(entry.value ->> 'version', '') AS version,
        (entry.value ->> 'finished_at')::timestamptz AS at,
        job.status = 'failed' AND entry.number = jsonb_array_length(job.errors) AS is_final
    FROM pgqueue_job AS job, jsonb_array_elements(job.errors) WITH ORDINALITY AS entry (value, number),
        jsonb_to_recordset(%(errors)s) AS error (task_path text, name text, fingerprint text, traceback text)
    WHERE job.queue_name = ANY (%(queues)s) AND job.errors <> '[]'
        AND error.task_path = job.task_path AND error.name = entry.value ->> 'class'
) AS attempt
GROUP BY date_bin('15 minutes', attempt.at, 'epoch'), attempt.fingerprint, attempt.task_path, attempt.queue_name,
    attempt.version, attempt.name, attempt.traceback
ORDER BY max(attempt.at)
