{# A template of Django. "range" is one (queue, priority), or one of its groups, above the mark of the worker. #}
{# The statuses are literals: a generic plan cannot match a parameter with the predicate of the partial index. #}
WITH {% if limited %}room AS MATERIALIZED (
    SELECT * FROM _pgqueue_room(%(limited_queues)s::text[], %(limits)s::integer[])
), {% endif %}picked AS MATERIALIZED (
    {# Race: another worker may be claiming one of the jobs that are to be taken first, so they are locked as well. #}
    {# The status is a calculation, which hides the predicate of pgqueue_job_claim. While a table has no statistics, #}
    {# the planner thinks that few rows wait, and would read that whole index together with these ids. #}
    WITH released AS MATERIALIZED (
        SELECT {{ columns }} FROM pgqueue_job_live AS job
        WHERE job.status || '' IN ('pending', 'retry') AND job.id = ANY ({{ first }})
        FOR NO KEY UPDATE SKIP LOCKED
    )
    SELECT due.*
    FROM unnest(%(queues)s::text[], %(priorities)s::smallint[], %(marks)s::timestamptz[],
        %(mark_ids)s::bigint[]{% if grouped %}, %(groups)s::text[], %(quotas)s::integer[]{% endif %}
    ) AS range (queue_name, priority, mark, mark_id{% if grouped %}, group_key, quota{% endif %})
    {% if limited %}{# A queue without room is not read, and several ranges of a queue share its room. #}
    CROSS JOIN LATERAL (
        SELECT least(
            %(limit)s, (SELECT room.room FROM room WHERE room.queue_name = range.queue_name)) AS room
    ) AS free{% endif %}
    {# This returns and locks one row at a time, so the outer LIMIT does not lock more rows than it returns. #}
    CROSS JOIN LATERAL (
        SELECT * FROM released
        WHERE released.queue_name = range.queue_name AND released.priority = range.priority
            {% if grouped %}AND released.group_key IS NOT DISTINCT FROM range.group_key{% endif %}
        UNION ALL
        SELECT * FROM (
            SELECT {{ columns }} FROM pgqueue_job_live AS job
            WHERE {% if grouped %}range.group_key IS NULL AND {% endif %}job.status IN ('pending', 'retry')
                AND job.queue_name = range.queue_name AND NOT job.is_grouped AND job.priority = range.priority
                AND (job.run_after, job.id) > (range.mark, range.mark_id) AND job.run_after <= statement_timestamp()
            ORDER BY job.run_after, job.id LIMIT {{ room }} FOR NO KEY UPDATE SKIP LOCKED
        ) AS pick
        WHERE pick.limit_key IS NULL OR pick.id NOT IN (SELECT released.id FROM released)
        {% if grouped %}{# Such a range is read by the index of the groups. #}
        UNION ALL
        SELECT * FROM (
            SELECT {{ columns }} FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.queue_name = range.queue_name
                AND job.group_key = range.group_key AND job.priority = range.priority
                AND (job.run_after, job.id) > (range.mark, range.mark_id) AND job.run_after <= statement_timestamp()
            ORDER BY job.run_after, job.id LIMIT {{ room }} FOR NO KEY UPDATE SKIP LOCKED
        ) AS pick
        WHERE pick.limit_key IS NULL OR pick.id NOT IN (SELECT released.id FROM released)
        {% endif %}
    ) AS due
    LIMIT {% if not limited %}%(limit)s{% else %}least(
        %(limit)s, (SELECT room.room FROM room WHERE room.queue_name = '*')){% endif %}
), {% if limited %}allowed AS MATERIALIZED (
    {# The first ones of a queue, in the order in which they were picked: a sort by the queue alone may lose it. #}
    SELECT * FROM (
        SELECT placed.*, row_number() OVER (PARTITION BY placed.queue_name ORDER BY placed.place) AS nth
        FROM (SELECT picked.*, row_number() OVER () AS place FROM picked) AS placed
    ) AS picked
    WHERE picked.nth <= coalesce(
        (SELECT room.room FROM room WHERE room.queue_name = picked.queue_name), %(limit)s)
    ORDER BY picked.place
), {% endif %}sized AS MATERIALIZED (
    SELECT one.*, sum(one.size) OVER (ROWS UNBOUNDED PRECEDING) - one.size AS before
    FROM {% if limited %}allowed{% else %}picked{% endif %} AS one
), fitting AS (
    SELECT * FROM sized WHERE sized.before < {{ characters }}
), gate AS MATERIALIZED (
    SELECT verdict.*
    FROM (
        SELECT array_agg(fitting.id) AS ids, array_agg(fitting.limit_key::text) AS keys,
            array_agg(fitting.queue_name::text) AS queues, array_agg(fitting.priority) AS priorities,
            array_agg(fitting.wait_position) AS lines
        FROM fitting WHERE fitting.limit_key IS NOT NULL
    ) AS asked
    CROSS JOIN LATERAL _pgqueue_gate(
        asked.ids, asked.keys, asked.queues, asked.priorities, asked.lines) AS verdict
    WHERE asked.ids IS NOT NULL
), claimed AS (
    UPDATE pgqueue_job_live AS job SET
        status = 'running', attempts = job.attempts + 1, worker = %(worker)s, lease = %(lease)s,
        started_at = coalesce(job.started_at, clock_timestamp()),
        last_attempted_at = clock_timestamp(),
        deadline = clock_timestamp() + job.timeout * interval '1 second', waiting_reason = ''
    {# Not a join with fitting, whose size a generic plan overestimates: it becomes a hash join over the table. #}
    WHERE job.id = ANY (ARRAY(
        SELECT fitting.id FROM fitting WHERE fitting.limit_key IS NULL
        UNION ALL
        SELECT unnest(gate.granted) FROM gate
    ))
    RETURNING {{ returned }}
)
SELECT * FROM claimed
UNION ALL
SELECT {{ refused }} FROM gate
WHERE gate.moved > 0 OR gate.left_behind > 0 OR {{ first }} <> '{}'
UNION ALL
SELECT {{ full }} FROM (SELECT FROM sized WHERE sized.before >= {{ characters }} LIMIT 1) AS too_large
{# A claim that must not be lost waits for the disk, as far as the server is configured for that. reset_val is what #}
{# is configured, whatever the session has set. It is not read for other claims: a join may read all settings first. #}
UNION ALL
SELECT {{ nothing }} FROM (
    SELECT set_config(
        'synchronous_commit',
        (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), true) AS level
    FROM claimed WHERE claimed.on_lost = 'fail' LIMIT 1
) AS durable WHERE durable.level IS NULL
{% if limited %}{# What starts in a limited queue is charged to its rate. #}
UNION ALL
SELECT {{ nothing }} FROM (
    SELECT _pgqueue_charge(ARRAY(
        SELECT CASE WHEN room.queue_name = '*' THEN '*' ELSE 'queue:' || room.queue_name END
        FROM room JOIN claimed ON room.queue_name IN ('*', claimed.queue_name))) AS rates
    OFFSET 0
) AS charged WHERE charged.rates < 0
{% endif %}
