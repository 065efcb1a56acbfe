-- What a role can do in spite of everything: through PUBLIC, or another role whose member it is.
SELECT 'create objects in the schema ' || place.nspname FROM pg_namespace AS place
WHERE place.oid = (SELECT relnamespace FROM pg_class WHERE oid = 'pgqueue_job'::regclass)
    AND has_schema_privilege(%(role)s, place.oid, 'CREATE')
UNION ALL
SELECT lower(wanted.right) || ' rows of ' || relation.relname
FROM pg_class AS root JOIN pg_class AS relation USING (relnamespace)
CROSS JOIN unnest(%(rights)s::text[]) WITH ORDINALITY AS wanted ("right", place)
WHERE root.oid = 'pgqueue_job'::regclass AND starts_with(relation.relname, 'pgqueue_')
    AND relation.relkind IN ('r', 'p')
    AND CASE WHEN wanted.right IN ('DELETE', 'TRUNCATE')
        THEN has_table_privilege(%(role)s, relation.oid, wanted.right)
        ELSE has_any_column_privilege(%(role)s, relation.oid, wanted.right) END
