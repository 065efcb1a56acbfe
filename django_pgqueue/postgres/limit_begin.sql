-- A shorter limit of the server, the role or the connection is kept; 0 means no limit. It is not read from
-- pg_settings, because that view reads all settings of the server. Plans are not compiled: this would take most of the
-- time of a short statement.
SELECT now.setting, least(nullif(now.milliseconds, 0), {limit})::integer, set_config('jit', 'off', true),
    set_config('statement_timeout', CASE
        WHEN now.milliseconds = 0 OR now.milliseconds > {limit} THEN '{limit}' ELSE now.setting END, true)
FROM (
    SELECT setting, 1000 * date_part('epoch', setting::interval) AS milliseconds
    FROM current_setting('statement_timeout') AS setting
) AS now;
SAVEPOINT time_limit
