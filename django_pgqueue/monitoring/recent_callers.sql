-- Who enqueued the last jobs of a task, as far as its jobs know: waiting and running jobs are the latest ones.
, sample AS (
    SELECT job.parents, job.batch, job.has_user FROM (
        SELECT live.task_path, live.parents, live.batch, live.context ? 'user' AS has_user
        FROM pgqueue_job_live AS live ORDER BY live.id DESC LIMIT %(window)s
    ) AS job WHERE job.task_path = %(task)s
    UNION ALL
    SELECT recent.parents, recent.batch, recent.has_user FROM recent WHERE recent.task_path = %(task)s
), part AS (
    SELECT * FROM sample LIMIT %(most)s
)
SELECT (SELECT count(*) FROM part), (SELECT count(*) FROM part WHERE part.batch IS NOT NULL),
    (SELECT count(*) FROM part WHERE part.has_user), (SELECT count(*) FROM part WHERE part.parents <> '{}'),
    ARRAY(SELECT DISTINCT job.task_path FROM pgqueue_job AS job
        WHERE job.id = ANY (ARRAY(SELECT part.parents[1] FROM part WHERE part.parents <> '{}' LIMIT %(some)s))
        ORDER BY job.task_path)
