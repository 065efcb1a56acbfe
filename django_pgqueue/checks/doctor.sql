-- Facts about the server, the workers, the schedules and the tables, which the doctor judges, as one object.
WITH configured AS (
    SELECT jsonb_object_agg(given.name, given.setting) AS found
    FROM pg_settings AS given WHERE given.name = ANY (%(settings)s)
), alive AS (
    SELECT worker.version, count(*) AS workers, max(worker.slots) AS slots,
        extract(epoch FROM statement_timestamp() - min(worker.started_at))::float8 AS seconds
    FROM pgqueue_worker AS worker
    -- A worker in another language, which has no supervisor, has versions of its own.
    WHERE worker.supervisor IS NOT NULL
        AND worker.heartbeat_at >= statement_timestamp() - %(lease)s * interval '1 s'
    GROUP BY worker.version
), late AS (
    SELECT schedule.name, extract(epoch FROM statement_timestamp() - schedule.next_run_at)::float8 AS seconds
    FROM pgqueue_schedule AS schedule
    WHERE schedule.paused_at IS NULL AND schedule.retired_at IS NULL
        AND coalesce(schedule.next_run_at, schedule.since) < statement_timestamp() - %(late)s * interval '1 s'
)
SELECT jsonb_build_object(
    'settings', (SELECT configured.found FROM configured),
    'notify', coalesce(current_setting('pgqueue.notify', true), ''),
    'versions', (
        SELECT coalesce(jsonb_agg(alive ORDER BY alive.seconds DESC), '[]') FROM alive WHERE alive.version <> ''),
    'slots', (SELECT coalesce(max(alive.slots), 0) FROM alive),
    'late', (SELECT coalesce(jsonb_agg(late ORDER BY late.name), '[]') FROM late),
    'kept', pg_stat_get_live_tuples('pgqueue_job_kept'::regclass)
)
