-- Delete payloads whose job is no longer kept. Of each table, look at the next p_limit rows in the order of the ids,
-- and begin anew after the last one. Returns how many were deleted, what prevented it, for each table with a problem,
-- and the models in which strays were found.
--
-- Only what once had a job is deleted: a row whose id is among those of the jobs that are gone (pgqueue_gone). Any
-- other row without a job was written without triggers. It is noted as a stray, because later the jobs around it are
-- gone, too. If the queue of the task keeps finished jobs for no time at all, their ids are not noted, and each row
-- without a job counts as one of theirs, unless it is a stray already.
--
-- Race: a retry moves the job from history to the live leaf. One statement looks into all leaves, and so with one
-- snapshot, in which the job is in exactly one leaf. Two statements could miss it in both.
--
-- Race: a job goes between two statements. So pgqueue_gone is read after the look at the jobs.
--
-- Race: two supervisors sweep at the same time. One skips the table.
CREATE FUNCTION _pgqueue_sweep_payloads(
    p_limit integer, OUT swept integer, OUT problems text[], OUT strays text[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    kind record;
    page bigint[];
    jobless bigint[];
    over bigint[];
    reached bigint;
    deleted integer;
    deferred text;
BEGIN
    swept := 0;
    FOR kind IN
        SELECT declared.task_path, declared.model, declared.relation, declared.swept_to, least(
            coalesce(queue.retention, ring.retention), coalesce(queue.failed_retention, ring.failed_retention)
        ) <= interval '0' AS forgets
        FROM pgqueue_task AS declared CROSS JOIN pgqueue_ring AS ring
        LEFT JOIN pgqueue_queue AS queue ON queue.name = declared.queue_name
        WHERE EXISTS (SELECT FROM pg_class AS class WHERE class.oid = declared.relation)
            -- A task whose path has changed has two rows. The table is swept once, and not if either of them keeps.
            AND NOT EXISTS (
                SELECT FROM pgqueue_task AS same WHERE same.relation = declared.relation
                    AND (same.keeps OR same.task_path < declared.task_path))
        ORDER BY declared.task_path FOR NO KEY UPDATE OF declared SKIP LOCKED
    LOOP
        page := NULL;
        jobless := '{}';
        BEGIN
            EXECUTE format('SELECT array_agg(page.job_id) FROM (SELECT row.job_id FROM %s AS row WHERE row.job_id > $1
                ORDER BY row.job_id LIMIT $2) AS page', kind.relation) INTO page USING kind.swept_to, p_limit;
            IF page IS NOT NULL THEN
                jobless := ARRAY(
                    SELECT given.id FROM unnest(page) AS given (id)
                    WHERE given.id <> ALL (ARRAY(SELECT job.id FROM pgqueue_job AS job WHERE job.id = ANY (page))));
            END IF;
            IF jobless <> '{}' THEN
                over := ARRAY(
                    SELECT given.id FROM unnest(jobless) AS given (id)
                    WHERE (kind.forgets OR EXISTS (
                            SELECT FROM pgqueue_gone AS gone WHERE given.id BETWEEN gone.first_id AND gone.last_id))
                        AND NOT EXISTS (
                            SELECT FROM pgqueue_stray AS stray
                            WHERE stray.relation = kind.relation AND stray.job_id = given.id));
                IF over <> jobless THEN
                    strays := strays || kind.model::text;
                    INSERT INTO pgqueue_stray (relation, job_id)
                    SELECT kind.relation, given.id FROM unnest(jobless) AS given (id) WHERE given.id <> ALL (over)
                    ON CONFLICT DO NOTHING;
                END IF;
                EXECUTE format('DELETE FROM %s AS row WHERE row.job_id = ANY ($1)', kind.relation) USING over;
                GET DIAGNOSTICS deleted = ROW_COUNT;
                -- Check the foreign keys now that reference the table, which Django makes deferrable: at the commit it
                -- would be too late to undo only the deletion of these rows.
                SELECT string_agg(format('%I.%I', schema.nspname, reference.conname), ', ') INTO deferred
                FROM pg_constraint AS reference JOIN pg_namespace AS schema ON schema.oid = reference.connamespace
                WHERE reference.contype = 'f' AND reference.confrelid = kind.relation AND reference.condeferrable;
                IF deferred IS NOT NULL THEN
                    EXECUTE format('SET CONSTRAINTS %s IMMEDIATE', deferred);
                    EXECUTE format('SET CONSTRAINTS %s DEFERRED', deferred);
                END IF;
                swept := swept + deleted;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            problems := problems || format('%s: %s', kind.model, SQLERRM);
        END;
        reached := CASE WHEN cardinality(page) = p_limit THEN page[p_limit] END;
        DELETE FROM pgqueue_stray AS stray
        WHERE stray.relation = kind.relation AND stray.job_id > kind.swept_to
            AND (reached IS NULL OR stray.job_id <= reached) AND stray.job_id <> ALL (jobless);
        UPDATE pgqueue_task AS declared SET swept_to = coalesce(reached, 0)
        WHERE declared.task_path = kind.task_path AND declared.swept_to <> coalesce(reached, 0);
    END LOOP;
END $$;
