-- How many slots the jobs of each queue want: one for each job that runs, and as many as it takes to run the ready ones
-- within drain_within, by how long attempts of the queue ran in the last hour, or a second if none did. Rounded up,
-- the sum is never 0 while a job is ready or runs. Ready jobs of paused queues want none. ready: 10,001
-- stands for more than 10,000. queues: these only; NULL: all.
--
-- A schedule that is due wants a slot, in a row whose queue is empty, since no schedule fires without a worker.
CREATE FUNCTION pgqueue_wanted_slots(
    queues text[] DEFAULT NULL, drain_within interval DEFAULT '1 minute',
    OUT queue_name text, OUT ready bigint, OUT running bigint, OUT run_seconds double precision,
    OUT slots double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    goal constant double precision := extract(epoch FROM drain_within);
BEGIN
    IF (goal > 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'pgqueue: wanted_slots: drain_within must be longer than 0 seconds, not %',
            coalesce(drain_within::text, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY
    WITH pauses AS (
        SELECT pause.kind, pause.name FROM pgqueue_pause AS pause
        WHERE pause.kind IN ('all', 'queue') AND (pause.until IS NULL OR pause.until > statement_timestamp())
    ), depth AS (
        SELECT each.queue_name, sum(each.running)::bigint AS running,
            CASE WHEN EXISTS (
                SELECT FROM pauses WHERE pauses.kind = 'all' OR pauses.name = each.queue_name
            ) THEN 0 ELSE least(sum(each.ready), 10001)::bigint END AS ready
        FROM _pgqueue_depth(10000) AS each
        WHERE queues IS NULL OR each.queue_name = ANY (queues)
        GROUP BY each.queue_name
    ), wanted AS (
        SELECT depth.queue_name, depth.ready, depth.running, coalesce((
            SELECT sum(stat.run_seconds) / nullif(sum(stat.done + stat.failed + stat.retried + stat.cancelled), 0)
            FROM pgqueue_stat AS stat
            WHERE stat.minute >= statement_timestamp() - interval '1 hour' AND stat.queue_name = depth.queue_name
        ), 1)::double precision AS run_seconds
        FROM depth
    )
    SELECT wanted.queue_name, wanted.ready, wanted.running, wanted.run_seconds,
        wanted.running + wanted.ready * greatest(wanted.run_seconds, 0.001) / goal
    FROM wanted
    UNION ALL
    SELECT '', 0, 0, 0, 1 WHERE queues IS NULL AND EXISTS (
        SELECT FROM pgqueue_schedule AS schedule
        WHERE schedule.paused_at IS NULL AND schedule.retired_at IS NULL
            AND coalesce(schedule.next_run_at, timestamptz '1970-01-01 00:00:00+00') <= statement_timestamp());
END $$;
