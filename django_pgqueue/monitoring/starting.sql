-- A supervisor writes no row. Its processes do so when they have loaded the project. Everybody may read this column.
SELECT count(*) > (SELECT count(DISTINCT supervisor) FROM pgqueue_worker) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = %s
