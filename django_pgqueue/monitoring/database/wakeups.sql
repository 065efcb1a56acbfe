-- How full the server's queue of notifications is, and how many workers do not hear any, since they are behind a
-- transaction pooler. Workers in other languages decide for themselves.
SELECT pg_notification_queue_usage() AS queue_usage, count(*) FILTER (WHERE worker.supervisor IS NOT NULL) AS workers,
    count(*) FILTER (WHERE worker.supervisor IS NOT NULL AND NOT worker.holds_lock) AS polling_workers
FROM pgqueue_worker AS worker
