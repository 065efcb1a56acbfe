-- Register a worker in another language, and return its id. It has no supervisor and no session lock, so it counts as
-- dead when its last heartbeat is older than the lease (_pgqueue_recover_dead). If a crash of the server loses this
-- commit, it loses all later claims, too: none is left to a worker that is not registered.
CREATE FUNCTION pgqueue_register_worker(
    host text, queues text[] DEFAULT '{}', slots integer DEFAULT 1, pid integer DEFAULT NULL, version text DEFAULT ''
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT
SET standard_conforming_strings = on AS $$
#variable_conflict use_column
DECLARE
    registered bigint;
    problem text := CASE
        WHEN coalesce(host, '') = '' OR length(host) > 255 THEN 'host must be 1 to 255 characters'
        WHEN slots IS NULL OR slots < 1 THEN format('slots %s must be at least 1', coalesce(slots::text, 'NULL'))
        WHEN length(version) > 50 THEN 'version has more than 50 characters'
    END;
BEGIN
    problem := coalesce(problem, (
        SELECT min(found.problem) FROM unnest(queues) AS queue (name)
        CROSS JOIN LATERAL _pgqueue_problem(
            'a.task', '[]', '{}', '{}', queue.name, 0, NULL, NULL, NULL, NULL, NULL, NULL) AS found (problem)));
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: register: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_worker (
        id, host, pid, supervisor, queues, slots, version, state, holds_lock, started_jobs, started_at, heartbeat_at)
    VALUES (
        _pgqueue_random(), host, coalesce(pid, 0), NULL, coalesce(queues, '{}'), slots, coalesce(version, ''),
        'running', false, '{}', clock_timestamp(), clock_timestamp())
    RETURNING id INTO registered;
    RETURN registered;
END $$;

-- Send the heartbeat of a worker in another language. Returns whether it is still registered (if not, its jobs were
-- requeued or soon will be), its jobs that were asked to cancel, and whether it was asked to end.
--
-- Race: recovery may find the worker dead at this moment. It holds the row until its commit, so this waits for it, and
-- finds no row afterwards.
CREATE FUNCTION pgqueue_heartbeat(
    worker bigint, OUT registered boolean, OUT cancel_requested bigint[], OUT asked_to_end boolean
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    UPDATE pgqueue_worker AS worker SET
        heartbeat_at = clock_timestamp(),
        state = CASE WHEN worker.drain <> '' THEN 'draining' ELSE worker.state END
    WHERE worker.id = pgqueue_heartbeat.worker
    RETURNING worker.drain <> '' INTO asked_to_end;
    registered := FOUND;
    asked_to_end := coalesce(asked_to_end, false);
    cancel_requested := ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job
        WHERE job.status = 'running' AND job.worker = pgqueue_heartbeat.worker AND job.cancel_requested_at IS NOT NULL
        ORDER BY job.id);
END $$;

-- Remove a worker in another language at its end. Returns whether it is gone: if it still holds a job, it stays, to be
-- found dead when its lease ends, and its jobs are requeued then. Race: a claim of this worker holds its row until it
-- commits, so this waits, and the statement after that sees the jobs.
CREATE FUNCTION pgqueue_unregister_worker(worker bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM pgqueue_worker AS worker WHERE worker.id = pgqueue_unregister_worker.worker FOR UPDATE;
    PERFORM _pgqueue_forget_workers(ARRAY[pgqueue_unregister_worker.worker]);
    RETURN NOT EXISTS (SELECT FROM pgqueue_worker AS worker WHERE worker.id = pgqueue_unregister_worker.worker);
END $$;

-- Ask a worker process to finish its jobs and end. With replace, its supervisor starts another process in its place;
-- otherwise its supervisor and all of its processes end. Returns whether there is such a process.
--
-- Only one row changes: two updates of several rows, this and a heartbeat, could deadlock. The other processes of the
-- supervisor read it there.
CREATE FUNCTION pgqueue_drain_worker(worker bigint, replace boolean DEFAULT true) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    IF replace IS NULL THEN
        RAISE EXCEPTION 'pgqueue: drain_worker: replace must be true or false, not NULL'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE pgqueue_worker AS worker SET drain = CASE WHEN replace THEN 'replace' ELSE 'stop' END
    WHERE worker.id = pgqueue_drain_worker.worker AND worker.drain <> 'stop';  -- a stop is not taken back
    IF NOT FOUND AND NOT EXISTS (
        SELECT FROM pgqueue_worker AS worker WHERE worker.id = pgqueue_drain_worker.worker
    ) THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(_pgqueue_channel(), 'drain');
    RETURN true;
END $$;
