SELECT name, kind.is_grouped, first.priority
FROM {queues} AS name, (VALUES (false), (true)) AS kind (is_grouped),
    _pgqueue_first_of_priorities(name, kind.is_grouped, 101, -101) AS first
LIMIT {most}
