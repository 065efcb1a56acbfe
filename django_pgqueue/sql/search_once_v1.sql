-- Let a claim by SQL search once for jobs with and without a group, in few steps, or the other way round. The function
-- keeps its name: workers of any release use the newer search as soon as it is there.
CREATE FUNCTION pgqueue_search_once_v1(p_once boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    twice constant text := $q$(
            SELECT * FROM pgqueue_first_due_v1(p_queues, p_except, '{}', '{}', '{}', '{}')
            UNION ALL SELECT * FROM pgqueue_first_due_v1(p_queues, p_except, '{}', '{}', '{}', '{}', true)
        )$q$;
    once constant text := $q$pgqueue_first_due_v2(p_queues, p_except, '{}', '{}', '{}', '{}', '{}')$q$;
    definition text := pg_get_functiondef('pgqueue_pick_v1'::regproc);
BEGIN
    EXECUTE CASE WHEN p_once THEN replace(definition, twice, once) ELSE replace(definition, once, twice) END;
END $$;

SELECT pgqueue_search_once_v1(true);
