-- The key of an advisory lock. It contains the oid of the live leaf, so that two installations in two schemas of
-- one database share no locks. It has 64 bits, so that it does not collide with locks of other applications.
CREATE FUNCTION _pgqueue_lock_key(p_kind text, p_name text) RETURNS bigint
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT hashtextextended('pgqueue/' || 'pgqueue_job_live'::regclass::oid || '/' || p_kind || '/' || p_name, 0)
$$;

-- Lock the row of a duty until the end of the transaction. Returns false at once if another session has it. A row
-- that is missing, such as after a restore without data, is made again; whoever else makes it waits for this one.
CREATE FUNCTION _pgqueue_on_duty(p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM pgqueue_duty AS duty WHERE duty.name = p_name FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN true;
    END IF;
    INSERT INTO pgqueue_duty (name) VALUES (p_name) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

-- The channel of this installation's notifications.
CREATE FUNCTION _pgqueue_channel() RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT 'pgqueue_' || 'pgqueue_job_live'::regclass::oid
$$;

-- Return a random number from 0 to 2^62 - 1, for the ids and leases of workers in other languages. The server draws the
-- digits of a version 4 UUID from its strong source; those between the first and the last eight are not all random. A
-- lease must never come back: a number from a sequence would, after a crash of the server that has lost the commits of
-- the last claims, and then a report of a lost claim would be accepted for another one.
CREATE FUNCTION _pgqueue_random() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || left(drawn.digits, 8) || right(drawn.digits, 8))::bit(64)::bigint & 4611686018427387903
    FROM (SELECT gen_random_uuid()::text AS digits) AS drawn
$$;

-- Whether a job with this status is finished, for reports and other tools. NULL for an unknown status.
CREATE FUNCTION pgqueue_status_is_terminal(status text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT word.is_terminal FROM pgqueue_status AS word WHERE word.status = pgqueue_status_is_terminal.status
$$;

-- Whether a worker may claim a job with this status once it is due, for reports and other tools.
-- NULL for an unknown status.
CREATE FUNCTION pgqueue_status_is_claimable(status text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT word.is_claimable FROM pgqueue_status AS word WHERE word.status = pgqueue_status_is_claimable.status
$$;

-- Internal. Return whether a text is in a part of a JSON value that the admin shows, where p_like is a pattern and
-- p_names is an expression for redacted names. A function, and not a part of the statement that searches: its cost is
-- known to be small, so the planner still sees what it costs to find the jobs.
CREATE FUNCTION _pgqueue_shows(p_value jsonb, p_like text, p_names text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    WITH RECURSIVE part (key, value) AS (
        SELECT '', p_value
        UNION ALL
        SELECT child.key, child.value
        FROM part CROSS JOIN LATERAL (
            SELECT pair.key, CASE
                WHEN lower(
                    regexp_replace(
                        regexp_replace(pair.key, '([a-z0-9])([A-Z])', E'\\1_\\2', 'g'),
                        '([A-Z])([A-Z][a-z])', E'\\1_\\2', 'g'
                    )
                ) ~ p_names AND jsonb_typeof(pair.value) <> 'boolean' THEN 'null'
                ELSE pair.value
            END
            FROM jsonb_each(CASE jsonb_typeof(part.value) WHEN 'object' THEN part.value ELSE '{}' END) AS pair
            UNION ALL
            SELECT '', each.value
            FROM jsonb_array_elements(CASE jsonb_typeof(part.value) WHEN 'array' THEN part.value ELSE '[]' END) AS each
        ) AS child
    )
    SELECT EXISTS (
        SELECT FROM part
        WHERE upper(part.key) LIKE upper(p_like)
            OR jsonb_typeof(part.value) NOT IN ('array', 'object') AND upper(part.value #>> '{}') LIKE upper(p_like)
    )
$$;
