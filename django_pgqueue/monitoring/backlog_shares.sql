-- What the waiting jobs of a queue have in common: how many have each task, group, limit key, and value of an argument,
-- the five most frequent of each, if they have a share of %(least)s. The jobs come from backlog_first.sql or
-- backlog_sample.sql, with which the statement begins. Sorting is by bytes, which is faster.
, part AS (
    SELECT property.kind, property.task_path, property.name COLLATE "C" AS name, property.value COLLATE "C" AS value
    FROM waiting CROSS JOIN LATERAL (
        VALUES ('task', '', '', waiting.task_path), ('group', '', '', waiting.group_key),
            ('limit', '', '', waiting.limit_key)
        UNION ALL
        SELECT 'argument', waiting.task_path, 'kwargs.' || given.key, given.value #>> '{}'
        FROM jsonb_each(waiting.kwargs) AS given
        WHERE jsonb_typeof(given.value) IN ('string', 'number', 'boolean') AND length(given.value::text) <= 100
        UNION ALL
        SELECT 'argument', waiting.task_path, 'args.' || given.place - 1, given.value #>> '{}'
        FROM jsonb_array_elements(waiting.args) WITH ORDINALITY AS given (value, place)
        WHERE jsonb_typeof(given.value) IN ('string', 'number', 'boolean') AND length(given.value::text) <= 100
    ) AS property (kind, task_path, name, value)
    WHERE property.value IS NOT NULL
), counted AS (
    SELECT part.kind, part.task_path, part.name, part.value, count(*) AS jobs, row_number() OVER (
        PARTITION BY part.kind, part.task_path, part.name ORDER BY count(*) DESC, part.value
    ) AS place
    FROM part GROUP BY 1, 2, 3, 4
)
SELECT counted.kind, counted.task_path, counted.name, counted.value, counted.jobs, whole.jobs
FROM (SELECT count(*) FROM waiting) AS whole (jobs) LEFT JOIN counted
    ON counted.place <= 5 AND counted.jobs > 1 AND counted.jobs >= whole.jobs * %(least)s
ORDER BY array_position(ARRAY['task', 'group', 'limit', 'argument'], counted.kind), counted.jobs DESC,
    counted.task_path, counted.name, counted.value
LIMIT 20
