SELECT part.inhrelid::regclass AS table_name,
    pg_total_relation_size(part.inhrelid) AS bytes,
    stat.n_live_tup AS live_rows, stat.n_dead_tup AS dead_rows, stat.last_autovacuum
FROM pg_inherits AS part
JOIN pg_stat_all_tables AS stat ON stat.relid = part.inhrelid
WHERE part.inhparent = 'pgqueue_job'::regclass
ORDER BY bytes DESC;
