SELECT queue_name, sum(ready)::bigint,
    CASE WHEN count(scheduled) = count(*) THEN sum(scheduled)::bigint END, sum(retrying)::bigint,
    sum(running)::bigint, sum(blocked)::bigint, coalesce(max(oldest_ready), 0),
    coalesce(max(longest_running), 0)
FROM _pgqueue_depth(%s) GROUP BY queue_name
