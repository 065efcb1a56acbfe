-- Register a worker in another language, and return its id. It has no supervisor and no session lock, so it counts as
-- dead when its last heartbeat is older than the lease (dead_workers_v1.sql). If a crash of the server loses this
-- commit, it loses all later claims, too: none is left to a worker that is not registered.
CREATE FUNCTION pgqueue_register_worker(
    host text, queues text[] DEFAULT '{}', slots integer DEFAULT 1, pid integer DEFAULT NULL, version text DEFAULT ''
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT
SET standard_conforming_strings = on AS $$
#variable_conflict use_column
DECLARE
    registered bigint;
    problem text := CASE
        WHEN coalesce(pgqueue_register_worker.host, '') = '' OR length(pgqueue_register_worker.host) > 255 THEN 'host must be 1 to 255 characters'
        WHEN pgqueue_register_worker.slots IS NULL OR pgqueue_register_worker.slots < 1 THEN format('slots %s must be at least 1', coalesce(pgqueue_register_worker.slots::text, 'NULL'))
        WHEN length(pgqueue_register_worker.version) > 50 THEN 'version has more than 50 characters'
    END;
BEGIN
    problem := coalesce(problem, (
        SELECT min(found.problem) FROM unnest(pgqueue_register_worker.queues) AS queue (name)
        CROSS JOIN LATERAL pgqueue_problem_v1(
            'a.task', '[]', '{}', '{}', queue.name, 0, NULL, NULL, NULL, NULL, NULL, NULL) AS found (problem)));
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: register: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_worker (
        id, host, pid, supervisor, queues, slots, version, state, holds_lock, started_jobs, started_at, heartbeat_at)
    VALUES (
        pgqueue_random_v1(), pgqueue_register_worker.host, coalesce(pgqueue_register_worker.pid, 0), NULL, coalesce(pgqueue_register_worker.queues, '{}'), pgqueue_register_worker.slots, coalesce(pgqueue_register_worker.version, ''),
        'running', false, '{}', clock_timestamp(), clock_timestamp())
    RETURNING id INTO registered;
    RETURN registered;
END $$;
