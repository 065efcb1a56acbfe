-- New jobs that name other jobs, or a batch, are inserted: count the members that were added. Of a job that met a twin
-- with its unique key, nothing is left. Those that can never start are cancelled (link_v1.sql).
CREATE FUNCTION pgqueue_linked_v1(p_ids bigint[], p_batches bigint[], p_outcomes text[], p_lost bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    never bigint[] := ARRAY(
        SELECT job.id FROM unnest(p_ids, p_outcomes) AS job (id, outcome) WHERE job.outcome <> 'created');
    lost bigint[];
    marked pgqueue_ended_v1[];
BEGIN
    PERFORM pgqueue_count_v1(added.batch, added.jobs::integer, 0, 0, 0)
    FROM (
        SELECT job.batch, count(*) AS jobs FROM unnest(p_batches, p_outcomes) AS job (batch, outcome)
        WHERE job.batch IS NOT NULL AND job.outcome = 'created' GROUP BY job.batch ORDER BY job.batch
    ) AS added;
    IF never <> '{}' THEN
        DELETE FROM pgqueue_edge AS edge WHERE edge.child_id = ANY (never);
    END IF;
    lost := ARRAY(SELECT job.id FROM unnest(p_lost) AS job (id) WHERE job.id <> ALL (never));
    IF lost <> '{}' THEN
        SELECT gone.marked INTO marked FROM pgqueue_drop_v1(lost, array_fill(
            'a job or batch after which it was enqueued had failed or was cancelled'::text,
            ARRAY[cardinality(lost)])) AS gone;
        IF marked IS NOT NULL THEN
            PERFORM pgqueue_settle_v1(marked);
        END IF;
    END IF;
END $$;
