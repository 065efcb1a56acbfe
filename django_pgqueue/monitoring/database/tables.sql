-- The size of each table of the queue, its rows as the statistics of the server know them, and when it was vacuumed.
-- The functions read the counters of these tables only; pg_stat_user_tables would sum up the counters of all tables.
SELECT class.relname AS name, pg_relation_size(class.oid) AS table_bytes, pg_indexes_size(class.oid) AS index_bytes,
    pg_stat_get_live_tuples(class.oid) AS live_rows, pg_stat_get_dead_tuples(class.oid) AS dead_rows,
    greatest(pg_stat_get_last_autovacuum_time(class.oid), pg_stat_get_last_vacuum_time(class.oid)) AS vacuumed_at,
    greatest(pg_stat_get_last_autoanalyze_time(class.oid), pg_stat_get_last_analyze_time(class.oid)) AS analyzed_at,
    -- Whether jobs that end now go there; NULL if it is not a part of the ring of history.
    CASE WHEN class.relname ~ '^pgqueue_job_past_[0-9]$' THEN right(class.relname, 1)::integer = ring.current
        END AS is_current
FROM pg_class AS class, pgqueue_ring AS ring
WHERE class.relkind = 'r' AND starts_with(class.relname, 'pgqueue_') AND class.relnamespace = (
    SELECT relnamespace FROM pg_class WHERE oid = 'pgqueue_job'::regclass)
ORDER BY class.relname <> 'pgqueue_job_live', class.relname !~ '^pgqueue_job_(kept|past_[0-9])$',
    pg_relation_size(class.oid) + pg_indexes_size(class.oid) DESC, class.relname
