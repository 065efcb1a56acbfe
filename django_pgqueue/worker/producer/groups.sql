SELECT %s::text, %s::integer, run_after, id, extract(epoch FROM run_after - clock_timestamp())::float8,
    group_key FROM _pgqueue_groups_after(%s::text, %s::integer, %s::text, %s::integer)
