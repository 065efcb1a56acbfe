SELECT EXISTS (
    SELECT FROM _pgqueue_first_due(%s::text[], %s::text[], '{}', '{}', '{}', '{}', '{}') AS first
    WHERE first.run_after < clock_timestamp() - interval '1 second' AND NOT EXISTS (
        SELECT FROM pgqueue_pause
        WHERE kind = 'all' OR kind = 'queue' AND name = first.queue_name))
