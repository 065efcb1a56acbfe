-- The active schedules whose last runs were all skipped: how many in a row, and the job that was in the way of the last
-- one. A user's runs count for nothing.
SELECT schedule.name, skips.count, (
    SELECT run.job_id FROM pgqueue_schedule_run AS run
    WHERE run.schedule = schedule.name AND run.outcome IN ('skipped', 'existing') ORDER BY run.run_at DESC LIMIT 1
)
FROM pgqueue_schedule AS schedule CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT FROM pgqueue_schedule_run AS run
        WHERE run.schedule = schedule.name AND run.outcome IN ('skipped', 'existing')
            AND run.run_at > coalesce((
                SELECT other.run_at FROM pgqueue_schedule_run AS other
                WHERE other.schedule = schedule.name AND other.outcome NOT IN ('skipped', 'existing', 'manual')
                ORDER BY other.run_at DESC LIMIT 1), '-infinity')
        LIMIT %(most)s
    ) AS run
) AS skips
WHERE schedule.paused_at IS NULL AND schedule.retired_at IS NULL AND skips.count >= %(least)s
ORDER BY schedule.name
