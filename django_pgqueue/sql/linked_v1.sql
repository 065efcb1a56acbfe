-- New jobs that name other jobs, or a batch, are inserted: add their edges, and count the members that were added. A job
-- that met a twin with its unique key was not inserted.
--
-- The parents are noted in a setting until the end of the transaction, which locks them, and settles those that are over
-- (attach_v1.sql). So a job whose parent was cancelled before is cancelled, too. With an error instead, it would matter
-- whether a parent ends a moment earlier or later.
CREATE FUNCTION pgqueue_linked_v1(
    p_ids bigint[], p_outcomes text[], p_batches bigint[],
    p_places integer[], p_parents bigint[], p_if_failed text[], p_states text[]
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    attached text;
BEGIN
    PERFORM pgqueue_count_v1(added.batch, added.jobs::integer, 0, 0, 0)
    FROM (
        SELECT job.batch, count(*) AS jobs FROM unnest(p_batches, p_outcomes) AS job (batch, outcome)
        WHERE job.batch IS NOT NULL AND job.outcome = 'created' GROUP BY job.batch ORDER BY job.batch
    ) AS added;
    attached := (
        SELECT string_agg(parent.id::text, ',')
        FROM (
            SELECT DISTINCT pair.parent AS id FROM unnest(p_places, p_parents, p_states) AS pair (place, parent, state)
            WHERE pair.state = 'live' AND p_outcomes[pair.place] = 'created'
        ) AS parent);
    IF attached IS NOT NULL THEN
        PERFORM set_config(
            'pgqueue.attached', concat_ws(',', nullif(current_setting('pgqueue.attached', true), ''), attached), true);
    END IF;
    INSERT INTO pgqueue_edge (parent_id, child_id, if_failed)
    SELECT pair.parent, p_ids[pair.place], pair.if_failed
    FROM unnest(p_places, p_parents, p_if_failed, p_states) AS pair (place, parent, if_failed, state)
    WHERE pair.state IN ('live', 'inner') AND p_outcomes[pair.place] = 'created';
END $$;
