-- A copy of a server has its identifier, and its databases and tables have the same numbers there.
SELECT system_identifier::text, (SELECT oid::text FROM pg_database WHERE datname = current_database()),
    to_regclass('pgqueue_job')::oid::text
FROM pg_control_system()
