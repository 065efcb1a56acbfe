-- The indexes of the queue that are mostly empty, and the invalid ones that an interrupted REINDEX CONCURRENTLY has
-- left, which come first. The shelves of the ring are left out: they are truncated, together with their indexes. After
-- a crash of the server, the number of live rows may be lost, so the number at the last vacuum counts as well.
SELECT home.nspname, tree.relname, pg_relation_size(tree.oid), given.live_rows, given.is_leftover,
    pg_has_role(leaf.relowner, 'USAGE') OR CASE WHEN current_setting('server_version_num')::integer >= 170000
        THEN has_table_privilege(leaf.oid, 'MAINTAIN') AND NOT given.is_leftover ELSE false END
FROM pg_class AS leaf
JOIN pg_namespace AS home ON home.oid = leaf.relnamespace
JOIN pg_index AS link ON link.indrelid = leaf.oid
JOIN pg_class AS tree ON tree.oid = link.indexrelid
CROSS JOIN LATERAL (
    SELECT greatest(pg_stat_get_live_tuples(leaf.oid), tree.reltuples::bigint) AS live_rows,
        NOT link.indisvalid AND tree.relname ~ '_cc(new|old)[0-9]*$' AS is_leftover
) AS given
WHERE leaf.relkind = 'r' AND leaf.relname ~ '^pgqueue_' AND leaf.relname !~ '^pgqueue_job_past_'
    AND leaf.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'pgqueue_job'::regclass)
    AND (given.is_leftover OR link.indisvalid AND pg_relation_size(tree.oid) > greatest(
        %(index_bytes)s, %(index_bytes_of_row)s * given.live_rows))
ORDER BY given.is_leftover DESC, pg_relation_size(tree.oid) DESC
