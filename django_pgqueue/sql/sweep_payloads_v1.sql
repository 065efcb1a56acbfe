-- Delete payloads whose job is no longer kept. Of each table, look at the next p_limit rows in the order of the ids, and
-- begin anew after the last one. Returns how many were deleted, and what prevented it, for each table with a problem.
--
-- Race: a retry moves the job from history to the live leaf. One statement looks into all leaves, and so with one
-- snapshot, in which the job is in exactly one leaf. Two statements could miss it in both.
--
-- Race: two supervisors sweep at the same time. One skips the table.
CREATE FUNCTION pgqueue_sweep_payloads_v1(p_limit integer, OUT swept integer, OUT problems text[])
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    kind record;
    page bigint[];
    alive bigint[];
    deleted integer;
BEGIN
    swept := 0;
    FOR kind IN
        SELECT declared.task_path, declared.model, declared.relation, declared.swept_to
        FROM pgqueue_task AS declared
        WHERE EXISTS (SELECT FROM pg_class AS class WHERE class.oid = declared.relation)
            -- A task whose path has changed has two rows. The table is swept once, and not if either of them keeps.
            AND NOT EXISTS (
                SELECT FROM pgqueue_task AS same WHERE same.relation = declared.relation
                    AND (same.keeps OR same.task_path < declared.task_path))
        ORDER BY declared.task_path FOR NO KEY UPDATE OF declared SKIP LOCKED
    LOOP
        page := NULL;
        BEGIN
            EXECUTE format('SELECT array_agg(page.job_id) FROM (SELECT row.job_id FROM %s AS row WHERE row.job_id > $1
                ORDER BY row.job_id LIMIT $2) AS page', kind.relation) INTO page USING kind.swept_to, p_limit;
            IF page IS NOT NULL THEN
                alive := ARRAY(SELECT job.id FROM pgqueue_job AS job WHERE job.id = ANY (page));
            END IF;
            IF cardinality(page) > cardinality(alive) THEN
                EXECUTE format('DELETE FROM %s AS row WHERE row.job_id = ANY ($1)', kind.relation) USING ARRAY(
                    SELECT given.id FROM unnest(page) AS given (id) WHERE given.id <> ALL (alive));
                GET DIAGNOSTICS deleted = ROW_COUNT;
                PERFORM pgqueue_check_references_v1(kind.relation);
                swept := swept + deleted;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            problems := problems || format('%s: %s', kind.model, SQLERRM);
        END;
        UPDATE pgqueue_task AS declared
        SET swept_to = CASE WHEN cardinality(page) = p_limit THEN page[p_limit] ELSE 0 END
        WHERE declared.task_path = kind.task_path
            AND declared.swept_to <> CASE WHEN cardinality(page) = p_limit THEN page[p_limit] ELSE 0 END;
    END LOOP;
END $$;
