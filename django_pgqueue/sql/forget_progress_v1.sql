-- Delete the progress of finished jobs. No job depends on that, so a role that may not delete it leaves the rows: a
-- refusal here would be one of the outcome that ends the job.
CREATE FUNCTION pgqueue_forget_progress_v1(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM pgqueue_progress AS progress WHERE progress.job_id = ANY (p_ids);
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$;

-- Let settle_v1.sql call it, for jobs that have told their progress, or the other way round. The function keeps its name,
-- as in search_once_v1.sql.
CREATE FUNCTION pgqueue_settle_progress_v1(p_aside boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    inside constant text := $q$DELETE FROM pgqueue_progress AS progress WHERE progress.job_id = ANY (ARRAY(
            SELECT one.id FROM unnest(ended) AS one WHERE one.marks & 8 <> 0));$q$;
    aside constant text := $q$IF EXISTS (SELECT FROM unnest(ended) AS one WHERE one.marks & 8 <> 0) THEN
            PERFORM pgqueue_forget_progress_v1(ARRAY(
                SELECT one.id FROM unnest(ended) AS one WHERE one.marks & 8 <> 0));
        END IF;$q$;
    definition text := pg_get_functiondef('pgqueue_settle_v1'::regproc);
BEGIN
    EXECUTE CASE WHEN p_aside THEN replace(definition, inside, aside) ELSE replace(definition, aside, inside) END;
END $$;

SELECT pgqueue_settle_progress_v1(true);
