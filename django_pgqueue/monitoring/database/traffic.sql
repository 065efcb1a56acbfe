-- Sums that only grow until a user resets them.
SELECT extract(epoch FROM clock_timestamp())::float8 AS at, wal.wal_bytes::float8, database.xact_commit AS commits,
    database.xact_rollback AS rollbacks, database.deadlocks, checkpoints.{timed} AS timed,
    checkpoints.{forced} AS forced,
    extract(epoch FROM wal.stats_reset)::float8 AS wal_since,
    extract(epoch FROM coalesce(database.stats_reset, pg_postmaster_start_time()))::float8 AS since
FROM pg_stat_wal AS wal, pg_stat_database AS database, {view} AS checkpoints
WHERE database.datname = current_database()
