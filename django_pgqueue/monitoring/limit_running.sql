-- The jobs that hold a slot of a limit. The keys of a limit stand together in the index, because they are compared byte
-- by byte: "0" follows the slash.
SELECT count(*) FROM pgqueue_job_live AS job WHERE job.status = 'running' AND CASE
    WHEN pgqueue_limit.name = '*' THEN true
    WHEN pgqueue_limit.name LIKE 'queue:%%' THEN job.queue_name = substr(pgqueue_limit.name, length('queue:') + 1)
    ELSE job.limit_key = pgqueue_limit.name
        OR job.limit_key > pgqueue_limit.name || '/' AND job.limit_key < pgqueue_limit.name || '0'
END
