SELECT count(*) FILTER (WHERE is_alive) AS alive, count(*) FILTER (WHERE NOT is_alive) AS silent
FROM (
    SELECT heartbeat_at > clock_timestamp() - interval '30 seconds' AS is_alive
    FROM pgqueue_worker
) AS worker;
