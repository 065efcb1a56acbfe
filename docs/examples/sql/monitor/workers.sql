SELECT count(*) FILTER (WHERE heartbeat_at > clock_timestamp() - interval '30 seconds') AS alive,
    count(*) FILTER (WHERE heartbeat_at <= clock_timestamp() - interval '30 seconds') AS silent
FROM pgqueue_worker;
