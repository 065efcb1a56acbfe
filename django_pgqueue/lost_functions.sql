-- ALTER SCHEMA .. RENAME leaves the old name in the search paths of the functions.
SELECT split_part(setting, '=', 2),
    format('ALTER ROUTINE %s SET search_path = %I, pg_temp', oid::regprocedure, home)
FROM (
    SELECT routine.oid, place.nspname AS home, unnest(routine.proconfig) AS setting
    FROM pg_proc AS routine JOIN pg_namespace AS place ON place.oid = routine.pronamespace
    WHERE place.oid = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('pgqueue_job'))
        AND routine.proname ~ '^_?pgqueue_'
) AS configured
WHERE starts_with(setting, 'search_path=') AND setting <> format('search_path=%I, pg_temp', home)
