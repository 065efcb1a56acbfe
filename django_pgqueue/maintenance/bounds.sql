-- transaction_timeout is known from PostgreSQL 17 on.
SELECT set_config(bound.name, bound.value, false)
FROM unnest(%s::text[], %s::text[]) AS bound (name, value)
WHERE bound.name IN (SELECT known.name FROM pg_settings AS known)
