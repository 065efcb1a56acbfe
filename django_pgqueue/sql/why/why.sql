-- Why a job does not run: the one reason that holds it, as a code with its facts. The reasons are tried in the order in
-- which the claim would refuse the job, so what is found first has to be cured first. A finished job or runs has a
-- code, too. heartbeat and lease are the settings of those names, by which workers count as alive.
--
-- It is STABLE, so all statements of a call see one snapshot: a job that moves to history at this moment is in one
-- leaf. Each read is bounded, whatever waits: sequential scans are ruled out, and so are bitmaps, which read an index
-- to its end.
CREATE FUNCTION pgqueue_why(
    id bigint, heartbeat double precision DEFAULT 1, lease double precision DEFAULT 30, OUT code text, OUT facts jsonb
) RETURNS record LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan TO off SET enable_bitmapscan TO off SET jit TO off AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := clock_timestamp();
    job pgqueue_job_live;
    crew record;
BEGIN
    IF (heartbeat BETWEEN 0 AND 3155760000 AND pgqueue_why.lease BETWEEN 0 AND 3155760000) IS NOT TRUE THEN
        RAISE EXCEPTION 'pgqueue: why: heartbeat and lease must be from 0 to 100 years, not % and % seconds',
            coalesce(heartbeat::text, 'NULL'), coalesce(pgqueue_why.lease::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT live.* INTO job FROM pgqueue_job_live AS live WHERE live.id = pgqueue_why.id;
    IF NOT FOUND THEN
        SELECT over.code, over.facts INTO code, facts FROM _pgqueue_why_over(pgqueue_why.id) AS over;
    ELSIF job.status = 'running' THEN
        SELECT runs.code, runs.facts INTO code, facts FROM _pgqueue_why_running(job, now, pgqueue_why.lease) AS runs;
    ELSE
        SELECT held.code, held.facts INTO code, facts FROM _pgqueue_why_held(job, now) AS held;
        IF code IS NULL THEN
            SELECT found.* INTO crew
            FROM _pgqueue_why_workers(job.queue_name, now, heartbeat, pgqueue_why.lease) AS found;
            code := crew.code;
            facts := crew.facts;
        END IF;
        IF code IS NULL THEN
            SELECT turn.code, turn.facts INTO code, facts
            FROM _pgqueue_why_turn(job, now, crew.queues, crew.excluded) AS turn;
        ELSIF code = 'busy' THEN
            facts := facts || _pgqueue_why_ahead(job, now, crew.queues, crew.excluded);
        END IF;
        facts := jsonb_build_object('due_at', job.run_after) || facts;
    END IF;
    facts := jsonb_strip_nulls(jsonb_build_object(
        'asked_at', now, 'task_path', job.task_path, 'queue_name', job.queue_name) || facts);
END $$;

-- The last error of a job, without its traceback, for pgqueue_why. NULL if there is none.
CREATE FUNCTION _pgqueue_why_error(p_errors jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object(
        'class', left(last.error ->> 'class', 300), 'message', left(last.error ->> 'message', 500),
        'step', last.error ->> 'step', 'attempt', last.error -> 'attempt')
    FROM (SELECT p_errors -> -1 AS error) AS last WHERE jsonb_typeof(last.error) = 'object'
$$;

-- Whether a job waits because a worker did not know its task, as the worker has put it (paths.py).
CREATE FUNCTION _pgqueue_why_is_unknown(p_reason text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT starts_with(p_reason, 'no task ') OR strpos(p_reason, ' is not a task (') > 0
$$;
