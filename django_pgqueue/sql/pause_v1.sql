-- Pause a queue, a task, or everything, until a time (NULL: until a user resumes it). p_seconds counts from now,
-- instead of p_until. A pause of the same target is replaced. Workers learn it by the notification, at commit. Returns
-- the id of the pause.
CREATE FUNCTION pgqueue_pause_v1(
    p_kind text, p_name text, p_reason text, p_author text, p_until timestamptz, p_seconds double precision
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT
SET standard_conforming_strings = on AS $$
DECLARE
    now timestamptz := clock_timestamp();
    ends timestamptz := coalesce(p_until, now + p_seconds * interval '1 second');
    paused bigint;
    problem text := CASE
        WHEN p_kind IS NULL OR p_kind NOT IN ('queue', 'task', 'all')
            THEN format('pause: kind %L is not one of queue, task, all', p_kind)
        WHEN p_kind = 'all' AND coalesce(p_name, '') <> ''
            THEN format('pause: a pause of everything has no name, but %L was given', p_name)
        WHEN p_kind <> 'all' THEN pgqueue_problem_v1(
            CASE WHEN p_kind = 'task' THEN p_name ELSE 'a.task' END, '[]', '{}', '{}',
            CASE WHEN p_kind = 'queue' THEN p_name ELSE 'default' END, 0, NULL, NULL, NULL, NULL, NULL, NULL)
    END;
BEGIN
    problem := coalesce(problem, CASE
        WHEN length(p_reason) > 400 THEN 'pause: the reason has more than 400 characters'
        WHEN length(p_author) > 150 THEN 'pause: the author has more than 150 characters'
        WHEN ends <= now THEN format('pause: the end %s is in the past', ends)
        WHEN ends > now + interval '100 years' THEN format('pause: the end %s is more than 100 years ahead', ends)
    END);
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_pause AS pause (kind, name, reason, author, paused_at, until)
    VALUES (p_kind, coalesce(p_name, ''), coalesce(p_reason, ''), coalesce(p_author, ''), now, ends)
    ON CONFLICT (kind, name) DO UPDATE SET
        reason = excluded.reason, author = excluded.author, paused_at = excluded.paused_at, until = excluded.until
    RETURNING pause.id INTO paused;
    PERFORM pg_notify(pgqueue_channel_v1(), 'pause');
    RETURN paused;
END $$;
