-- Write the limits that the code declares. A limit that was set by hand keeps its numbers. Rows that do not change are
-- not written. Race: two workers that start at the same time write the rows in the same order, and do not deadlock.
CREATE FUNCTION pgqueue_declare_limits_v1(
    p_names text[], p_running integer[], p_on_conflict text[], p_starts integer[] DEFAULT NULL,
    p_periods interval[] DEFAULT NULL, p_bursts integer[] DEFAULT NULL, p_modules text[] DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    changed text[];
BEGIN
    WITH written AS (
        INSERT INTO pgqueue_limit AS setting (
            name, running, declared, on_conflict, starts, declared_starts, period, declared_period, burst,
            declared_burst, declared_by)
        SELECT given.name, given.running, given.running, given.on_conflict, given.starts, given.starts,
            pure.period, pure.period, given.burst, given.burst, coalesce(given.module, '')
        FROM unnest(p_names, p_running, p_on_conflict, p_starts, p_periods, p_bursts, p_modules)
            AS given (name, running, on_conflict, starts, period, burst, module)
        CROSS JOIN LATERAL (
            SELECT extract(epoch FROM given.period)::double precision * interval '1 second' AS period
        ) AS pure
        ORDER BY given.name
        ON CONFLICT (name) DO UPDATE SET on_conflict = excluded.on_conflict,
            declared = excluded.declared, declared_starts = excluded.declared_starts,
            declared_period = excluded.declared_period, declared_burst = excluded.declared_burst,
            declared_by = excluded.declared_by,
            running = CASE WHEN setting.is_overridden THEN setting.running ELSE excluded.running END,
            starts = CASE WHEN setting.is_overridden THEN setting.starts ELSE excluded.starts END,
            period = CASE WHEN setting.is_overridden THEN setting.period ELSE excluded.period END,
            burst = CASE WHEN setting.is_overridden THEN setting.burst ELSE excluded.burst END
        WHERE (setting.on_conflict, setting.declared_by) <> (excluded.on_conflict, excluded.declared_by)
            OR (setting.declared, setting.declared_starts, setting.declared_period, setting.declared_burst)
                IS DISTINCT FROM
                (excluded.declared, excluded.declared_starts, excluded.declared_period, excluded.declared_burst)
        RETURNING setting.name
    )
    SELECT array_agg(written.name) INTO changed FROM written;
    PERFORM pgqueue_release_limit_v1(each.name) FROM unnest(changed) AS each (name);
    RETURN coalesce(cardinality(changed), 0);
END $$;
