SELECT recent.id, recent.task_path, recent.queue_name, recent.status, recent.finished_at, recent.duration,
    recent.attempts, of_all.seconds, count(*) FILTER (WHERE recent.status <> 'failed') OVER ()
FROM recent, (
    SELECT extract(epoch FROM statement_timestamp() - min(recent.finished_at))::float8 AS seconds
    FROM recent WHERE recent.status <> 'failed'
) AS of_all
WHERE recent.worker = %(worker)s
ORDER BY recent.finished_at DESC, recent.id DESC LIMIT %(most)s
