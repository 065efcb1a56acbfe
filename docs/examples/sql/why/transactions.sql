SELECT pid, application_name, state,
    clock_timestamp() - xact_start AS open_for, left(query, 100) AS last_query
FROM pg_stat_activity
WHERE datname = current_database() AND xact_start IS NOT NULL
    AND pid <> pg_backend_pid()
ORDER BY xact_start;
