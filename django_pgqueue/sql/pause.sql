-- Pause a queue, a task, or everything, until a time (NULL: until a user resumes it). duration counts from now, instead of until. A pause of the same target is replaced. Workers learn it by the notification, at commit. Returns
-- the id of the pause.
CREATE FUNCTION pgqueue_pause(
    kind text,
    name text DEFAULT '',
    reason text DEFAULT '',
    author text DEFAULT '',
    until timestamptz DEFAULT NULL,
    duration interval DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT
SET standard_conforming_strings = on AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := clock_timestamp();
    ends timestamptz := coalesce(pgqueue_pause.until, now + duration);
    paused bigint;
    problem text := CASE
        WHEN pgqueue_pause.kind IS NULL OR pgqueue_pause.kind NOT IN ('queue', 'task', 'all')
            THEN format('pause: kind %L is not one of queue, task, all', pgqueue_pause.kind)
        WHEN pgqueue_pause.kind = 'all' AND coalesce(pgqueue_pause.name, '') <> ''
            THEN format('pause: a pause of everything has no name, but %L was given', pgqueue_pause.name)
        WHEN pgqueue_pause.kind <> 'all' THEN pgqueue_problem_v1(
            CASE WHEN pgqueue_pause.kind = 'task' THEN pgqueue_pause.name ELSE 'a.task' END, '[]', '{}', '{}',
            CASE WHEN pgqueue_pause.kind = 'queue' THEN pgqueue_pause.name ELSE 'default' END, 0, NULL, NULL, NULL, NULL, NULL, NULL)
    END;
BEGIN
    problem := coalesce(problem, CASE
        WHEN length(pgqueue_pause.reason) > 400 THEN 'pause: the reason has more than 400 characters'
        WHEN length(pgqueue_pause.author) > 150 THEN 'pause: the author has more than 150 characters'
        WHEN ends <= now THEN format('pause: the end %s is in the past', ends)
        WHEN ends > now + interval '100 years' THEN format('pause: the end %s is more than 100 years ahead', ends)
    END);
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_pause AS pause (kind, name, reason, author, paused_at, until)
    VALUES (pgqueue_pause.kind, coalesce(pgqueue_pause.name, ''), coalesce(pgqueue_pause.reason, ''), coalesce(pgqueue_pause.author, ''), now, ends)
    ON CONFLICT (kind, name) DO UPDATE SET
        reason = excluded.reason, author = excluded.author, paused_at = excluded.paused_at, until = excluded.until
    RETURNING pause.id INTO paused;
    PERFORM pg_notify(pgqueue_channel_v1(), 'pause');
    RETURN paused;
END $$;
