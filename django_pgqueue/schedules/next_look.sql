(
    SELECT min(look.seconds) FROM (
        (SELECT date_part('epoch', coalesce(schedule.next_run_at, timestamptz '1970-01-01 00:00:00+00')
            - clock_timestamp()) AS seconds
        FROM pgqueue_schedule AS schedule WHERE {active}
        ORDER BY coalesce(schedule.next_run_at, timestamptz '1970-01-01 00:00:00+00') LIMIT 1)
        UNION ALL
        (SELECT 1.0 FROM pgqueue_schedule AS schedule WHERE schedule.waiting > 0 AND {active} LIMIT 1)
    ) AS look
)
