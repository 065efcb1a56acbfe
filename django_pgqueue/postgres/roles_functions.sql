WITH place AS (
    SELECT relnamespace AS schema, relowner AS owner FROM pg_class WHERE oid = to_regclass('pgqueue_job')
), routine AS (
    SELECT one.oid, one.proname::text AS name, regexp_replace(one.proname, '_[0-9]+$', '') AS stem,
        one.prosecdef AS is_definer, coalesce(one.proacl, acldefault('f', one.proowner)) AS rights
    FROM place JOIN pg_proc AS one ON one.pronamespace = place.schema
    WHERE one.proname ~ '^_?pgqueue_'
)
