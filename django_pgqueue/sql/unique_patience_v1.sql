-- Let a call wait at most ten seconds for a transaction that holds its unique key, or the other way round. A session that
-- has a lock_timeout of its own keeps it.
CREATE FUNCTION pgqueue_unique_patience_v1(p_limited boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    definition text := pg_get_functiondef('pgqueue_insert_unique_v1'::regproc);
    change record;
BEGIN
    FOR change IN
        SELECT * FROM (VALUES
            ($q$    key text :=$q$,
             $q$    own_timeout constant text := current_setting('lock_timeout');
    key text :=$q$),
            ($q$    FOR attempt IN$q$,
             $q$    PERFORM set_config('lock_timeout', CASE own_timeout WHEN '0' THEN '10s' ELSE own_timeout END, true);
    FOR attempt IN$q$),
            ($q$ RETURN;$q$,
             $q$ PERFORM set_config('lock_timeout', own_timeout, true); RETURN;$q$)
        ) AS text (unlimited, limited)
    LOOP
        definition := CASE WHEN p_limited THEN replace(definition, change.unlimited, change.limited)
            ELSE replace(definition, change.limited, change.unlimited) END;
    END LOOP;
    EXECUTE definition;
END $$;

SELECT pgqueue_unique_patience_v1(true);
