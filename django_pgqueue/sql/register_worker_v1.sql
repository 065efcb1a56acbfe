-- Register a worker in another language, and return its id. It has no supervisor and no session lock, so it counts as
-- dead when its last heartbeat is older than the lease (dead_workers_v1.sql). If a crash of the server loses this
-- commit, it loses all later claims, too: none is left to a worker that is not registered.
CREATE FUNCTION pgqueue_register_worker_v1(
    p_host text, p_queues text[], p_slots integer, p_pid integer, p_version text
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT
SET standard_conforming_strings = on AS $$
DECLARE
    registered bigint;
    problem text := CASE
        WHEN coalesce(p_host, '') = '' OR length(p_host) > 255 THEN 'host must be 1 to 255 characters'
        WHEN p_slots IS NULL OR p_slots < 1 THEN format('slots %s must be at least 1', coalesce(p_slots::text, 'NULL'))
        WHEN length(p_version) > 50 THEN 'version has more than 50 characters'
    END;
BEGIN
    problem := coalesce(problem, (
        SELECT min(found.problem) FROM unnest(p_queues) AS queue (name)
        CROSS JOIN LATERAL pgqueue_problem_v1(
            'a.task', '[]', '{}', '{}', queue.name, 0, NULL, NULL, NULL, NULL, NULL, NULL) AS found (problem)));
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: register: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_worker (
        id, host, pid, supervisor, queues, slots, version, state, holds_lock, started_jobs, started_at, heartbeat_at)
    VALUES (
        pgqueue_random_v1(), p_host, coalesce(p_pid, 0), NULL, coalesce(p_queues, '{}'), p_slots, coalesce(p_version, ''),
        'running', false, '{}', clock_timestamp(), clock_timestamp())
    RETURNING id INTO registered;
    RETURN registered;
END $$;
