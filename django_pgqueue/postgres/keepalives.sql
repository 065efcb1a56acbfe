-- Unless the server, the database, the role or OPTIONS set them already. A server that waits for a lock does not look
-- at its client by itself. Systems other than Linux may not allow that, and raise an error. Behind a pooler the
-- session belongs to everybody, and the connection ends at the pooler.
SELECT set_config(name, given, false)
FROM (VALUES ('tcp_keepalives_idle', %(idle)s), ('tcp_keepalives_interval', %(interval)s),
    ('tcp_keepalives_count', %(count)s), ('tcp_user_timeout', %(unacknowledged)s),
    ('client_connection_check_interval', %(look)s)) AS ours (name, given)
JOIN pg_settings USING (name)
WHERE source = 'default' AND pg_backend_pid() = %(pid)s
    AND (name <> 'client_connection_check_interval' OR version() LIKE '%%linux%%')
