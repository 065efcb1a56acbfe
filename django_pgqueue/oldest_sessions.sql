SELECT pid, coalesce(nullif(application_name, ''), usename), state,
    date_trunc('second', clock_timestamp() - xact_start)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
ORDER BY xact_start LIMIT 3
