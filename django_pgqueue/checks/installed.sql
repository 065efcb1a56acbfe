SELECT proname FROM pg_proc WHERE proname ~ '^_?pgqueue_' AND pg_function_is_visible(oid)
UNION ALL
SELECT relname FROM pg_class WHERE relname = ANY (%s) AND pg_table_is_visible(oid)
