-- Receive the calls of jobs of the relay in another database (jobs/relay.py), in one transaction with their jobs.
-- Returns the job of each call, also of one that was received before, and NULL for one that was cancelled. The columns
-- of a call are the arguments of _pgqueue_enqueue_many, and its delay counts from now. An expiry that follows a fixed
-- time counts from that time, even if the call comes later.
--
-- Race: the process that has committed here dies before it reports that, or has overslept its lease. The next attempt
-- finds the row.
-- Race: two attempts at the same time. The second INSERT waits for the transaction of the first one. Calls are inserted
-- in the order of their ids, so that two processes never wait for each other.
-- Race: a call is cancelled (_pgqueue_take_back) before an attempt comes that began earlier. It finds the row without a
-- job. One that began later, because the job of the relay was retried, is welcome.
CREATE FUNCTION _pgqueue_receive(p_calls jsonb, OUT id bigint, OUT job bigint) RETURNS SETOF record
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '3s' AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := clock_timestamp();
    new record;
    jobs bigint[];
BEGIN
    WITH given AS (
        SELECT DISTINCT ON (call.id, call.token) call.*
        FROM jsonb_to_recordset(p_calls) AS call (
            id bigint, token uuid, claimed_at timestamptz, task_path text, args jsonb, kwargs jsonb, metadata jsonb,
            queue_name text, priority integer, run_after timestamptz, delay double precision,
            expires_after double precision, max_attempts integer, timeout integer, on_lost text, options jsonb)
        ORDER BY call.id, call.token
    ), received AS (
        INSERT INTO pgqueue_received (id, token, asked_at)
        SELECT given.id, given.token, given.claimed_at FROM given ORDER BY given.id, given.token
        ON CONFLICT (id, token) DO UPDATE SET asked_at = excluded.asked_at
            WHERE pgqueue_received.job IS NULL AND pgqueue_received.asked_at < excluded.asked_at
        RETURNING pgqueue_received.id, pgqueue_received.token
    )
    SELECT array_agg(given.id) AS ids, array_agg(given.token) AS tokens, array_agg(given.task_path) AS task_paths,
        array_agg(given.args) AS args, array_agg(given.kwargs) AS kwargs, array_agg(given.metadata) AS metadata,
        array_agg(given.queue_name) AS queue_names, array_agg(given.priority) AS priorities,
        array_agg(given.run_after) AS run_after, array_agg(given.delay) AS delays,
        array_agg(given.expires_after - greatest(extract(epoch FROM now - given.run_after), 0)) AS expires_after,
        array_agg(given.max_attempts) AS max_attempts, array_agg(given.timeout) AS timeouts,
        array_agg(given.on_lost) AS on_lost,
        CASE WHEN count(given.options) > 0 THEN array_agg(given.options) END AS options
    INTO new
    FROM given JOIN received USING (id, token);
    IF new.ids IS NOT NULL THEN
        SELECT many.ids INTO jobs FROM _pgqueue_enqueue_many(
            0, new.task_paths, new.args, new.kwargs, new.metadata, new.queue_names, new.priorities, new.run_after,
            new.delays, new.expires_after, new.max_attempts, new.timeouts, new.on_lost, NULL, new.options) AS many;
        UPDATE pgqueue_received AS received SET job = made.job
        FROM unnest(new.ids, new.tokens, jobs) AS made (id, token, job)
        WHERE received.id = made.id AND received.token = made.token;
    END IF;
    RETURN QUERY
    SELECT received.id, received.job
    FROM jsonb_to_recordset(p_calls) AS call (id bigint, token uuid)
    JOIN pgqueue_received AS received USING (id, token);
END $$;

-- Cancel the jobs of calls that other databases have handed over, and refuse calls that have not come yet. Returns the
-- ids of the jobs that changed.
--
-- Race: an attempt is in its transaction here. The INSERT waits for its end, and then the job is there.
CREATE FUNCTION _pgqueue_take_back(p_calls jsonb) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '3s' AS $$
BEGIN
    INSERT INTO pgqueue_received (id, token, asked_at)
    SELECT call.id, call.token, call.asked_at
    FROM jsonb_to_recordset(p_calls) AS call (id bigint, token uuid, asked_at timestamptz)
    ORDER BY call.id, call.token
    ON CONFLICT (id, token) DO NOTHING;
    RETURN pgqueue_cancel(ARRAY(
        SELECT received.job
        FROM jsonb_to_recordset(p_calls) AS call (id bigint, token uuid)
        JOIN pgqueue_received AS received USING (id, token)
        WHERE received.job IS NOT NULL));
END $$;

-- Jobs of the relay are cancelled here: write the jobs that take back their calls, one for each database, for up to
-- 1,000 calls. p_started: the live jobs that were claimed once. They may have handed over their calls, and may do so at
-- this moment, in whatever way they end. p_ids: with them, jobs that may have finished. Returns the ids of the finished
-- ones. They stay as they are, so each cancel asks once more.
CREATE FUNCTION _pgqueue_recall(p_started bigint[], p_ids bigint[]) RETURNS bigint[]
LANGUAGE sql SET search_path FROM CURRENT AS $$
    WITH calls AS MATERIALIZED (
        SELECT job.id, job.args, job.priority, job.shelf, job.tenant,
            row_number() OVER (PARTITION BY job.args -> 0, job.tenant ORDER BY job.id) / 1000 AS part
        FROM pgqueue_job AS job
        WHERE job.id = ANY (p_ids) AND job.task_path = 'django_pgqueue.jobs.relay.hand_over'
            AND (job.status = 'done' OR job.id = ANY (p_started))
    ), written AS (
        INSERT INTO pgqueue_job (task_path, args, queue_name, priority, max_attempts, tenant)
        SELECT 'django_pgqueue.jobs.relay.take_back',
            jsonb_build_array(calls.args -> 0, jsonb_agg(jsonb_build_object(
                'id', calls.id, 'token', calls.args -> 2, 'asked_at', clock_timestamp()) ORDER BY calls.id)),
            'relay', max(calls.priority), 2147483647, calls.tenant
        FROM calls GROUP BY calls.args -> 0, calls.tenant, calls.part
    )
    SELECT array_agg(calls.id) FROM calls WHERE calls.shelf <> 0
$$;
