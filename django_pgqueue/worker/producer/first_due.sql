-- The known ranges; of the others as many as the worker may soon read, with the highest priorities, and the next ones
-- that come due. What is left out is found when the worker has read these.
WITH found AS MATERIALIZED (
    SELECT queue_name, priority, run_after, id, extract(epoch FROM run_after - clock_timestamp())::float8 AS due_in,
        group_key, is_known
    FROM _pgqueue_first_due(
        %s::text[], %s::text[], %s::text[], %s::boolean[], %s::integer[], %s::timestamptz[], %s::bigint[], %s)
)
SELECT * FROM found WHERE is_known
UNION ALL
(SELECT * FROM found WHERE NOT is_known AND due_in <= 0 ORDER BY priority DESC, random() LIMIT 1000)
UNION ALL
(SELECT * FROM found WHERE NOT is_known AND due_in > 0 ORDER BY due_in LIMIT 50)
