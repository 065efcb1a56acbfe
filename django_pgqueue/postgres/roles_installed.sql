SELECT quote_ident(place.nspname) AS schema, string_agg(object.name, ', ') FILTER (WHERE kind = 'table'),
    string_agg(object.name, ', ') FILTER (WHERE kind = 'sequence'),
    string_agg(object.name, ', ') FILTER (WHERE object.key = ANY (%(called)s)),
    string_agg(object.name, ', ') FILTER (WHERE object.key = ANY (%(worker_only)s)),
    array_agg(object.name) FILTER (WHERE object.key = ANY (%(definers)s)),
    to_regclass(quote_ident(place.nspname) || '.django_migrations') IS NOT NULL
FROM pg_class AS root JOIN pg_namespace AS place ON place.oid = root.relnamespace, LATERAL (
    SELECT CASE relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, relname,
        format('%%I.%%I', place.nspname, relname)
    FROM pg_class
    WHERE relnamespace = place.oid AND starts_with(relname, 'pgqueue_') AND relkind IN ('r', 'p', 'S')
        AND relowner = root.relowner
    UNION ALL
    SELECT 'function', proname,
        format('%%I.%%I', place.nspname, proname) || substring(oid::regprocedure::text FROM '[(].*')
    FROM pg_proc
    WHERE pronamespace = place.oid AND proname = ANY (%(definers)s::text[] || %(worker_only)s::text[])
    ORDER BY 2
) AS object (kind, key, name)
WHERE root.oid = 'pgqueue_job'::regclass
GROUP BY place.nspname
