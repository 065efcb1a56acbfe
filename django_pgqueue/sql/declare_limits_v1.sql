-- Write the limits that the code declares. A limit that was set by hand keeps its number. Rows that do not change are
-- not written. Race: two workers that start at the same time write the rows in the same order, and do not deadlock.
CREATE FUNCTION pgqueue_declare_limits_v1(p_names text[], p_running integer[], p_on_conflict text[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    changed text[];
BEGIN
    WITH written AS (
        INSERT INTO pgqueue_limit AS setting (name, running, declared, on_conflict)
        SELECT given.name, given.running, given.running, given.on_conflict
        FROM unnest(p_names, p_running, p_on_conflict) AS given (name, running, on_conflict) ORDER BY given.name
        ON CONFLICT (name) DO UPDATE SET declared = excluded.declared, on_conflict = excluded.on_conflict,
            running = CASE WHEN setting.is_overridden THEN setting.running ELSE excluded.running END
        WHERE setting.declared IS DISTINCT FROM excluded.declared OR setting.on_conflict <> excluded.on_conflict
        RETURNING setting.name
    )
    SELECT array_agg(written.name) INTO changed FROM written;
    PERFORM pgqueue_release_limit_v1(each.name) FROM unnest(changed) AS each (name);
    RETURN coalesce(cardinality(changed), 0);
END $$;
