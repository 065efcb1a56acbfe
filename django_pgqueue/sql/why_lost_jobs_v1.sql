-- Let pgqueue_why count the slots that are taken by jobs which their workers have lost, or the other way round.
CREATE FUNCTION pgqueue_why_lost_jobs_v1(p_counted boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    definition text := pg_get_functiondef('pgqueue_why_workers_v1'::regproc);
    change record;
BEGIN
    FOR change IN
        SELECT * FROM (VALUES
            ($q$SELECT member.id, member.slots,$q$, $q$SELECT member.id, member.lost, member.slots,$q$),
            ($q$) AS part) AS running,$q$, $q$) AS part) + member.lost AS running,$q$),
            ($q$ AS running,
        count(*)$q$,
             $q$ AS running,
        coalesce(sum(worker.lost) FILTER (WHERE worker.is_able), 0) AS lost,
        count(*)$q$),
            ($q$'slots', crew.slots, 'longest'$q$,
             $q$'slots', crew.slots, 'lost', nullif(crew.lost, 0), 'longest'$q$)
        ) AS text (not_counted, counted)
    LOOP
        definition := CASE WHEN p_counted THEN replace(definition, change.not_counted, change.counted)
            ELSE replace(definition, change.counted, change.not_counted) END;
    END LOOP;
    EXECUTE definition;
END $$;

SELECT pgqueue_why_lost_jobs_v1(true);
