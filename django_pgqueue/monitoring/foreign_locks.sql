-- Sessions that hold an advisory lock of the queue, although their role may not change its jobs. Every role that may
-- connect can take such locks. The keys are made anew only if there is such a session with any advisory lock: the keys
-- of workers, of queues with a limit, and of the first thousand limit keys that have a line.
WITH stranger AS MATERIALIZED (
    SELECT lock.pid, activity.usename, (lock.classid::bigint << 32) | lock.objid::bigint AS key,
        clock_timestamp() - coalesce(activity.xact_start, activity.backend_start) AS age
    FROM pg_locks AS lock JOIN pg_stat_activity AS activity ON activity.pid = lock.pid
    WHERE lock.locktype = 'advisory' AND lock.objsubid = 1 AND lock.granted
        AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND NOT has_table_privilege(activity.usesysid, 'pgqueue_job_live', 'UPDATE')
), ours AS (
    SELECT 'limit' AS kind, _pgqueue_lines('', 1000) AS name FROM (SELECT FROM stranger LIMIT 1) AS found
    UNION ALL
    SELECT 'room', CASE WHEN setting.name = '*' THEN '*' ELSE substr(setting.name, 7) END FROM pgqueue_limit AS setting
    WHERE setting.name = '*' OR starts_with(setting.name, 'queue:')
    UNION ALL
    SELECT 'worker', worker.id::text FROM pgqueue_worker AS worker
)
SELECT stranger.pid, stranger.usename, max(stranger.age) FROM stranger
WHERE stranger.key IN (SELECT _pgqueue_lock_key(ours.kind, ours.name) FROM ours)
GROUP BY stranger.pid, stranger.usename ORDER BY max(stranger.age) DESC NULLS LAST, stranger.pid
LIMIT 50
