-- The schedules that are due. Times and periods are in microseconds.
SELECT schedule.name, schedule.xmin::text, schedule.cron, (extract(epoch FROM schedule.every) * 1000000)::bigint,
    schedule.timezone, schedule.catch_up, schedule.catch_up_limit,
    (extract(epoch FROM schedule.next_run_at) * 1000000)::bigint,
    (extract(epoch FROM schedule.last_run_at) * 1000000)::bigint,
    (extract(epoch FROM schedule.since) * 1000000)::bigint,
    (extract(epoch FROM statement_timestamp()) * 1000000)::bigint, schedule.owed::text,
    CASE WHEN schedule.policy ->> 'task_path' = schedule.task_path
        AND schedule.policy -> 'args' = schedule.args AND schedule.policy -> 'kwargs' = schedule.kwargs
    THEN NULL ELSE jsonb_build_array(schedule.task_path, schedule.args, schedule.kwargs)::text END
FROM pgqueue_schedule AS schedule
WHERE {active} AND (
    coalesce(schedule.next_run_at, timestamptz '1970-01-01 00:00:00+00') <= statement_timestamp()
    OR (schedule.waiting > 0
        AND NOT EXISTS (SELECT FROM pgqueue_job_live AS job WHERE job.id = ANY (schedule.live_jobs)))
)
ORDER BY coalesce(schedule.next_run_at, timestamptz '1970-01-01 00:00:00+00'), schedule.name LIMIT {most}
