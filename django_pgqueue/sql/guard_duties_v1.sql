-- Let the functions of maintenance lock the row of their duty in place of an advisory lock, or the other way round. They keep
-- their names, so that workers of the release before, which call them too, exclude workers of this one.
CREATE FUNCTION pgqueue_guard_duties_v1(p_by_rows boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    guarded record;
BEGIN
    FOR guarded IN
        SELECT pg_get_functiondef(found.oid) AS definition, guard.before, guard.after
        FROM pgqueue_duty AS duty
        CROSS JOIN LATERAL (VALUES (
            format('pg_try_advisory_xact_lock(pgqueue_lock_key_v1(%L, %L))', 'maintenance', duty.name),
            format('pgqueue_on_duty_v1(%L)', duty.name)
        )) AS form (advisory, by_row)
        CROSS JOIN LATERAL (VALUES (
            CASE WHEN p_by_rows THEN form.advisory ELSE form.by_row END,
            CASE WHEN p_by_rows THEN form.by_row ELSE form.advisory END
        )) AS guard (before, after)
        JOIN pg_proc AS found ON strpos(found.prosrc, guard.before) > 0
            AND found.pronamespace = (
                SELECT leaf.relnamespace FROM pg_class AS leaf WHERE leaf.oid = 'pgqueue_job_live'::regclass)
    LOOP
        EXECUTE replace(guarded.definition, guarded.before, guarded.after);
    END LOOP;
END $$;

SELECT pgqueue_guard_duties_v1(true);
