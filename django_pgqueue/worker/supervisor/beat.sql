-- The started jobs are stored for the supervisor that recovers them if this one dies, too. Returns the seconds until
-- the first late worker may be dead. A worker is late if that is less than 1.3 intervals away. No worker gets there
-- that sends its heartbeats. And the seconds until a schedule is due. Race: a heartbeat that another supervisor sends
-- at this moment is not seen. Recovery reads the rows again.
WITH beat AS (
    UPDATE pgqueue_worker AS worker SET heartbeat_at = clock_timestamp(),
        started_jobs = given.begun::bigint[], holds_lock = worker.holds_lock AND NOT given.lost_lock
    FROM unnest(%(ids)s::bigint[], %(begun)s::text[], %(lost_lock)s::boolean[])
        AS given (id, begun, lost_lock)
    WHERE worker.id = given.id
)
SELECT min(late.seconds_left), {next_look} FROM (
    SELECT date_part('epoch', other.heartbeat_at - clock_timestamp()) + CASE WHEN other.holds_lock
        THEN _pgqueue_allowed_silence(other.started_jobs, %(interval)s, %(lease)s)
        ELSE %(lease)s END AS seconds_left
    FROM pgqueue_worker AS other WHERE other.id <> ALL (%(ids)s::bigint[])
) AS late WHERE late.seconds_left < 1.3 * %(interval)s
