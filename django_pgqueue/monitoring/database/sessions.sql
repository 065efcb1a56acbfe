-- How many connections each program has in the whole server, and how many there may be. What the server keeps for
-- superusers does not count. States of other roles' sessions are visible only to members of pg_read_all_stats.
SELECT coalesce(session.application_name, '') AS name, count(*) AS connections,
    count(*) FILTER (WHERE session.state = 'active') AS active,
    count(*) FILTER (WHERE session.state IN ('idle in transaction', 'idle in transaction (aborted)')) AS in_transaction,
    count(*) FILTER (WHERE session.state IS NULL) AS hidden,
    count(*) FILTER (WHERE session.datname = current_database()) AS in_this_database,
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
        - coalesce(current_setting('reserved_connections', true)::integer, 0) AS allowed
FROM pg_stat_activity AS session
WHERE session.backend_type = 'client backend' OR (session.backend_type IS NULL AND session.usesysid IS NOT NULL)
GROUP BY 1 ORDER BY 2 DESC, 1
