-- Set a limit, whatever the code declares: SELECT pgqueue_set_limit('task', 'shop.tasks.sync', 5), and for a rate
-- SELECT pgqueue_set_limit('limit', 'crm', rate => 100, per => '1 minute', burst => 10). What is NULL stays as it is;
-- no_concurrency and no_rate take a number away.
CREATE FUNCTION pgqueue_set_limit(
    kind text, name text DEFAULT '', concurrency integer DEFAULT NULL, on_full text DEFAULT NULL,
    rate integer DEFAULT NULL, per interval DEFAULT NULL, burst integer DEFAULT NULL,
    no_concurrency boolean DEFAULT false, no_rate boolean DEFAULT false
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    target text := _pgqueue_limit_name(kind, name);
    problem text := coalesce(_pgqueue_limit_problem(target, concurrency, on_full, rate, per, burst), CASE
        WHEN concurrency IS NOT NULL AND no_concurrency OR rate IS NOT NULL AND no_rate
            THEN format('the limit %L: give a number, or take it away, but not both', target) END);
    -- Without days and months. A period that is too long has no such interval.
    period interval := interval '1 second'
        * CASE WHEN problem IS NULL THEN extract(epoch FROM per)::double precision END;
    sets_rate boolean := rate IS NOT NULL OR no_rate;
    written pgqueue_limit;
BEGIN
    IF problem IS NULL THEN
        INSERT INTO pgqueue_limit AS setting (name, concurrency, on_full, rate, per, burst, is_overridden)
        VALUES (target, concurrency, coalesce(on_full, 'wait'), rate, period,
            CASE WHEN rate IS NOT NULL THEN coalesce(burst, 1) END, true)
        ON CONFLICT (name) DO UPDATE SET is_overridden = true,
            concurrency = CASE WHEN no_concurrency IS NOT TRUE
                THEN coalesce(excluded.concurrency, setting.concurrency) END,
            on_full = coalesce(pgqueue_set_limit.on_full, setting.on_full),
            rate = CASE WHEN sets_rate THEN excluded.rate ELSE setting.rate END,
            per = CASE WHEN sets_rate THEN excluded.per ELSE setting.per END,
            burst = CASE WHEN sets_rate THEN excluded.burst ELSE setting.burst END
        RETURNING * INTO written;
        -- What stayed as it was may not fit: a rate, and jobs that do not wait.
        problem := coalesce(
            _pgqueue_limit_problem(
                target, written.concurrency, written.on_full, written.rate, written.per, written.burst),
            CASE WHEN num_nonnulls(written.concurrency, written.rate) = 0 AND (no_concurrency OR no_rate) IS NOT TRUE
                THEN format('the limit %L has no number: give concurrency or rate', target) END);
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM _pgqueue_release_limit(target);
END $$;

-- Let a limit be again what the code declares; one that no code declares is deleted. Return whether it was different:
-- SELECT pgqueue_reset_limit('queue', 'mail').
CREATE FUNCTION pgqueue_reset_limit(kind text, name text DEFAULT '') RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    target text := _pgqueue_limit_name(kind, name);
    problem text := _pgqueue_limit_problem(target, NULL, NULL);
    is_changed boolean;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    DELETE FROM pgqueue_limit AS setting
    WHERE setting.name = target AND num_nonnulls(setting.declared_concurrency, setting.declared_rate) = 0;
    is_changed := FOUND;
    UPDATE pgqueue_limit AS setting SET concurrency = setting.declared_concurrency, rate = setting.declared_rate,
        per = setting.declared_per, burst = setting.declared_burst, is_overridden = false
    WHERE setting.name = target AND setting.is_overridden;
    is_changed := is_changed OR FOUND;
    IF is_changed THEN
        PERFORM _pgqueue_release_limit(target);
    END IF;
    RETURN is_changed;
END $$;

-- Return the name under which a limit is stored: queue:<name> for a queue, * for the whole installation, and otherwise
-- the path of the task or the name in code.
CREATE FUNCTION _pgqueue_limit_name(p_kind text, p_name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_kind IS NULL OR p_kind NOT IN ('queue', 'task', 'limit', 'all') THEN
        RAISE EXCEPTION 'pgqueue: the kind of a limit must be queue, task, limit or all, not %', quote_nullable(p_kind)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Such as pgqueue_set_limit(''queue'', ''mail'', 5).';
    ELSIF (p_kind = 'all') <> (coalesce(p_name, '') = '') THEN
        RAISE EXCEPTION 'pgqueue: the limit of kind % %', p_kind,
            CASE p_kind WHEN 'all' THEN 'has no name' ELSE 'needs a name' END
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_kind IN ('task', 'limit') AND (p_name = '*' OR p_name LIKE 'queue:%') THEN
        RAISE EXCEPTION 'pgqueue: % is the limit of a queue or of all jobs', quote_literal(p_name)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use the kind queue or all.';
    END IF;
    RETURN CASE p_kind WHEN 'queue' THEN 'queue:' || p_name WHEN 'all' THEN '*' ELSE p_name END;
END $$;

-- Write the limits that the code declares. A limit that a user has set keeps its numbers. Rows that do not change are
-- not written. Race: two workers that start at the same time write the rows in the same order, and do not deadlock.
CREATE FUNCTION _pgqueue_declare_limits(
    p_names text[], p_concurrency integer[], p_on_full text[], p_rate integer[] DEFAULT NULL,
    p_pers interval[] DEFAULT NULL, p_bursts integer[] DEFAULT NULL, p_modules text[] DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    changed text[];
BEGIN
    WITH written AS (
        INSERT INTO pgqueue_limit AS setting (
            name, concurrency, declared_concurrency, on_full, rate, declared_rate, per, declared_per, burst,
            declared_burst, declared_by)
        SELECT given.name, given.concurrency, given.concurrency, given.on_full, given.rate, given.rate,
            pure.per, pure.per, given.burst, given.burst, coalesce(given.module, '')
        FROM unnest(p_names, p_concurrency, p_on_full, p_rate, p_pers, p_bursts, p_modules)
            AS given (name, concurrency, on_full, rate, per, burst, module)
        CROSS JOIN LATERAL (
            SELECT extract(epoch FROM given.per)::double precision * interval '1 second' AS per
        ) AS pure
        ORDER BY given.name
        ON CONFLICT (name) DO UPDATE SET on_full = excluded.on_full,
            declared_concurrency = excluded.declared_concurrency, declared_rate = excluded.declared_rate,
            declared_per = excluded.declared_per, declared_burst = excluded.declared_burst,
            declared_by = excluded.declared_by,
            concurrency = CASE WHEN setting.is_overridden THEN setting.concurrency ELSE excluded.concurrency END,
            rate = CASE WHEN setting.is_overridden THEN setting.rate ELSE excluded.rate END,
            per = CASE WHEN setting.is_overridden THEN setting.per ELSE excluded.per END,
            burst = CASE WHEN setting.is_overridden THEN setting.burst ELSE excluded.burst END
        WHERE (setting.on_full, setting.declared_by) <> (excluded.on_full, excluded.declared_by)
            OR (setting.declared_concurrency, setting.declared_rate, setting.declared_per, setting.declared_burst)
                IS DISTINCT FROM
                (excluded.declared_concurrency, excluded.declared_rate, excluded.declared_per, excluded.declared_burst)
        RETURNING setting.name
    )
    SELECT array_agg(written.name) INTO changed FROM written;
    PERFORM _pgqueue_release_limit(each.name) FROM unnest(changed) AS each (name);
    RETURN coalesce(cardinality(changed), 0);
END $$;
