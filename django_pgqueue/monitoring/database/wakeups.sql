-- How full the server's queue of notifications is, and how many workers do not hear any, since they are behind a
-- transaction pooler. Workers in other languages decide for themselves.
SELECT pg_notification_queue_usage(), count(*) FILTER (WHERE worker.supervisor IS NOT NULL),
    count(*) FILTER (WHERE worker.supervisor IS NOT NULL AND NOT worker.holds_lock)
FROM pgqueue_worker AS worker
