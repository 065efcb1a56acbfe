-- After roles_functions.sql.
, role AS (
    SELECT unnest(%(roles)s::text[]) AS name, unnest(%(are_workers)s::boolean[]) AS is_worker
)
SELECT routine.name || ' runs with the rights of its caller'
FROM routine WHERE routine.name = ANY (%(definers)s) AND NOT routine.is_definer
UNION ALL
SELECT 'everybody may call ' || routine.name
FROM routine WHERE (routine.name = ANY (%(called)s) OR routine.name = ANY (%(worker_only)s))
    AND EXISTS (SELECT FROM aclexplode(routine.rights) AS given WHERE given.grantee = 0)
UNION ALL
SELECT role.name || ' may not call ' || routine.name
FROM role CROSS JOIN routine
WHERE (routine.name = ANY (%(called)s) OR routine.name = ANY (%(worker_only)s) AND role.is_worker)
    AND NOT has_function_privilege(role.name, routine.oid, 'EXECUTE')
UNION ALL
SELECT role.name || ' lacks rights to ' || relation.relname
FROM role CROSS JOIN place JOIN pg_class AS relation ON relation.relnamespace = place.schema
WHERE role.is_worker AND starts_with(relation.relname, 'pgqueue_') AND relation.relowner = place.owner
    AND CASE WHEN relation.relkind = 'S' THEN EXISTS (
        SELECT FROM unnest(ARRAY['USAGE', 'SELECT']) AS needed ("right")
        WHERE NOT has_sequence_privilege(role.name, relation.oid, needed.right))
    WHEN relation.relkind IN ('r', 'p') THEN EXISTS (
        SELECT FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed ("right")
        WHERE NOT has_table_privilege(role.name, relation.oid, needed.right)) END
