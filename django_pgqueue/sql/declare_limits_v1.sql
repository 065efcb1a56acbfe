-- Write the limits that the code declares. A limit that was set by hand keeps its numbers. Rows that do not change are
-- not written. Race: two workers that start at the same time write the rows in the same order, and do not deadlock.
CREATE FUNCTION pgqueue_declare_limits_v1(
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
    PERFORM pgqueue_release_limit_v1(each.name) FROM unnest(changed) AS each (name);
    RETURN coalesce(cardinality(changed), 0);
END $$;
