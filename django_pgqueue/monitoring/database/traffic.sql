-- Sums that only grow until a user resets them.
SELECT extract(epoch FROM clock_timestamp())::float8, wal.wal_bytes::float8, database.xact_commit,
    database.xact_rollback, database.deadlocks, checkpoints.{timed}, checkpoints.{forced},
    extract(epoch FROM wal.stats_reset)::float8,
    extract(epoch FROM coalesce(database.stats_reset, pg_postmaster_start_time()))::float8
FROM pg_stat_wal AS wal, pg_stat_database AS database, {view} AS checkpoints
WHERE database.datname = current_database()
