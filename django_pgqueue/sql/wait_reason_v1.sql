-- Why a job waits that was enqueued after others. The first words tell such jobs from those that wait for a limit or for
-- the end of a pause (unblock_v1.sql, repair_edges_v1.sql).
CREATE FUNCTION pgqueue_wait_reason_v1(p_parents bigint[]) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT concat_ws(', and ',
        CASE WHEN cardinality(kinds.jobs) = 1 THEN 'waits for job ' || kinds.jobs[1]
            WHEN kinds.jobs <> '{}' THEN 'waits for jobs ' || array_to_string(kinds.jobs[1:5], ', ')
                || CASE WHEN cardinality(kinds.jobs) > 5 THEN format(' and %s more', cardinality(kinds.jobs) - 5) ELSE '' END
        END,
        CASE WHEN cardinality(kinds.batches) = 1 THEN 'waits for jobs of batch ' || kinds.batches[1]
            WHEN kinds.batches <> '{}' THEN 'waits for jobs of batches ' || array_to_string(kinds.batches[1:5], ', ')
                || CASE WHEN cardinality(kinds.batches) > 5
                    THEN format(' and %s more', cardinality(kinds.batches) - 5) ELSE '' END
        END)
    FROM (
        SELECT coalesce(array_agg(given.id ORDER BY given.id) FILTER (WHERE batch.id IS NULL), '{}') AS jobs,
            coalesce(array_agg(given.id ORDER BY given.id) FILTER (WHERE batch.id IS NOT NULL), '{}') AS batches
        FROM unnest(p_parents) AS given (id) LEFT JOIN pgqueue_batch AS batch ON batch.id = given.id
    ) AS kinds
$$;
