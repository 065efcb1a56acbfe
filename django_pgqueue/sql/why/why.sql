-- Why a job does not run: the one reason that holds it, as a code with its facts. The reasons are tried in the order in
-- which the claim would refuse the job, so what is found first has to be cured first. A finished job or runs has a
-- code, too. heartbeat and lease are the settings of those names, by which workers count as alive.
--
-- It is STABLE, so all statements of a call see one snapshot: a job that moves to history at this moment is in one
-- leaf. Each read is bounded, whatever waits: sequential scans are ruled out, and so are bitmaps, which read an index
-- to its end.
--
-- The ids of workers are text, because a program that reads JSON numbers as floats would round them. The transaction
-- that has locked a row is in its xmax. If several have, that is the number of a group of them, which no row of
-- pg_locks has, and the lock is not found.
CREATE FUNCTION pgqueue_why(
    id bigint, heartbeat double precision DEFAULT 1, lease double precision DEFAULT 30, OUT code text, OUT facts jsonb
) RETURNS record LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan TO off SET enable_bitmapscan TO off SET jit TO off AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := clock_timestamp();
    job pgqueue_job;
    crew record;
BEGIN
    IF (heartbeat BETWEEN 0 AND 3155760000 AND pgqueue_why.lease BETWEEN 0 AND 3155760000) IS NOT TRUE THEN
        RAISE EXCEPTION 'pgqueue: why: heartbeat and lease must be from 0 to 100 years, not % and % seconds',
            coalesce(heartbeat::text, 'NULL'), coalesce(pgqueue_why.lease::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT one.* INTO job FROM pgqueue_job AS one WHERE one.id = pgqueue_why.id;
    IF NOT FOUND THEN
        code := 'unknown';
        facts := '{}';
    ELSIF job.shelf <> 0 THEN
        code := job.status;
        facts := jsonb_build_object(
            'ended_at', job.finished_at, 'attempts', job.attempts, 'reason', nullif(job.waiting_reason, ''),
            'asked_to_cancel_at', job.cancel_requested_at, 'error', job.errors -> -1);
    ELSIF job.status = 'running' THEN
        SELECT CASE
                WHEN worker.id IS NULL OR worker.heartbeat_at < now - pgqueue_why.lease * interval '1 second'
                    THEN 'worker_lost'
                WHEN job.cancel_requested_at IS NOT NULL THEN 'cancel_requested'
                ELSE 'running' END,
            jsonb_build_object(
                'attempt', job.attempts, 'since', job.last_attempted_at, 'deadline', job.deadline,
                'asked_to_cancel_at', job.cancel_requested_at, 'step', nullif(job.current_step, ''),
                'worker', jsonb_build_object('id', job.worker::text, 'host', worker.host, 'pid', worker.pid,
                    'heartbeat_at', worker.heartbeat_at),
                'progress', (
                    SELECT jsonb_build_object('done', one.done, 'total', one.total, 'note', nullif(one.note, ''))
                    FROM pgqueue_progress AS one WHERE one.job_id = job.id AND job.marks & 8 <> 0))
        INTO code, facts
        FROM (SELECT) AS one LEFT JOIN pgqueue_worker AS worker ON worker.id = job.worker;
    ELSE
        SELECT held.code, held.facts INTO code, facts FROM _pgqueue_why_held(job, now) AS held;
        IF code IS NULL THEN
            SELECT * INTO crew FROM _pgqueue_why_workers(job.queue_name, now, heartbeat, pgqueue_why.lease);
            code := crew.code;
            facts := crew.facts;
        END IF;
        IF code = 'busy' THEN
            facts := facts || (
                SELECT ahead.facts FROM _pgqueue_why_ahead(job, now, crew.queues, crew.excluded) AS ahead);
        ELSIF code IS NULL AND job.waiting_reason ~ '^no task | is not a task [(]' THEN  -- tasks/paths.py
            code := 'unknown_task';
            facts := jsonb_build_object('reason', job.waiting_reason);
        ELSIF code IS NULL THEN
            SELECT 'locked', jsonb_build_object('pid', held.pid, 'application', nullif(session.application_name, ''),
                'since', session.xact_start)
            INTO code, facts
            FROM pgqueue_job_live AS locked
            JOIN pg_locks AS held ON held.locktype = 'transactionid' AND held.transactionid = locked.xmax
                AND held.granted AND held.pid <> pg_backend_pid()
            LEFT JOIN pg_stat_get_activity(held.pid) AS session ON true
            WHERE locked.id = job.id;
        END IF;
        IF code IS NULL THEN
            SELECT ahead.code, ahead.facts INTO code, facts
            FROM _pgqueue_why_ahead(job, now, crew.queues, crew.excluded) AS ahead;
        END IF;
        facts := jsonb_build_object('due_at', job.run_after) || facts;
    END IF;
    facts := facts || jsonb_build_object('asked_at', now, 'task_path', job.task_path, 'queue_name', job.queue_name,
        'error', CASE WHEN jsonb_typeof(facts -> 'error') = 'object' THEN jsonb_build_object(  -- without its traceback
            'class', left(facts #>> '{error,class}', 300), 'message', left(facts #>> '{error,message}', 500),
            'step', facts #>> '{error,step}', 'attempt', facts #> '{error,attempt}') END);
    IF job.task_path = 'django_pgqueue.jobs.relay.hand_over' THEN
        facts := facts || jsonb_build_object('relay', jsonb_build_object('to', job.args -> 0, 'job', job.result));
    END IF;
    facts := jsonb_strip_nulls(facts);
END $$;
