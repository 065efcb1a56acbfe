-- Who waits for a lock on a table of the queue, or waits for another lock while it holds one on such a table, and for
-- whom. Each pair of a waiting and a blocking session is a row; the blocking one may be a prepared transaction, which
-- has no session and the process 0. The locks are read once, since they change between two reads.
WITH lock AS MATERIALIZED (
    SELECT pid, locktype, mode, relation, granted, waitstart FROM pg_locks
    WHERE database IS NULL OR database = (SELECT oid FROM pg_database WHERE datname = current_database())
), ours AS MATERIALIZED (
    -- The table that it waits for, or the row; otherwise one that it changes, or that it reads.
    SELECT lock.pid, (array_agg(class.relname ORDER BY lock.granted, lock.locktype <> 'tuple',
        lock.mode = 'AccessShareLock', class.relkind <> 'r', class.relname))[1] AS relname
    FROM lock JOIN pg_class AS class ON class.oid = lock.relation
    WHERE class.relkind IN ('r', 'p', 'i', 'I') AND starts_with(class.relname, 'pgqueue_') AND class.relnamespace = (
        SELECT relnamespace FROM pg_class WHERE oid = 'pgqueue_job'::regclass)
    GROUP BY lock.pid
), waiting AS MATERIALIZED (
    SELECT lock.pid, ours.relname, lock.locktype,
        coalesce(date_part('epoch', clock_timestamp() - lock.waitstart), 0) AS seconds
    FROM lock JOIN ours USING (pid) WHERE NOT lock.granted
    ORDER BY lock.waitstart LIMIT %(most)s
)
SELECT waiting.relname AS "table", waiting.locktype AS lock, waiting.seconds,
    waiting.pid, coalesce(waiter.application_name, '') AS program, coalesce(waiter.usename, '') AS role,
    CASE WHEN %(statements)s AND waiter.backend_type IS NOT NULL THEN left(waiter.query, %(characters)s) ELSE ''
        END AS statement,
    blocker.pid AS blocked_by, coalesce(holder.application_name, '') AS blocker,
    coalesce(holder.usename, '') AS blocker_role, coalesce(holder.state, '') AS blocker_state,
    date_part('epoch', clock_timestamp() - holder.xact_start) AS blocker_seconds,
    CASE WHEN %(statements)s AND holder.backend_type IS NOT NULL THEN left(holder.query, %(characters)s) ELSE ''
        END AS blocker_statement
FROM waiting
CROSS JOIN LATERAL (SELECT DISTINCT unnest(pg_blocking_pids(waiting.pid))) AS blocker (pid)
LEFT JOIN pg_stat_activity AS waiter ON waiter.pid = waiting.pid
LEFT JOIN pg_stat_activity AS holder ON holder.pid = blocker.pid
ORDER BY waiting.seconds DESC, waiting.pid, blocker.pid
LIMIT %(most)s
