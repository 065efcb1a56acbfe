-- What keeps VACUUM from removing dead rows of this database, the oldest first: transactions, prepared transactions,
-- and replication slots (a standby with hot_standby_feedback holds its snapshot by its slot or by its walsender).
-- VACUUM itself holds nothing back. Times of other roles' sessions are visible only to members of pg_read_all_stats.
SELECT held.kind, held.name, held.pid, held.role, held.state, held.seconds, held.transactions, held.is_visible,
    held.statement
FROM (
    SELECT 'transaction' AS kind, coalesce(session.application_name, '') AS name, session.pid,
        coalesce(session.usename, '') AS role, coalesce(session.state, '') AS state,
        date_part('epoch', clock_timestamp() - session.xact_start) AS seconds,
        greatest(age(session.backend_xmin), age(session.backend_xid)) AS transactions,
        session.backend_type IS NOT NULL AS is_visible,
        CASE WHEN %(statements)s AND session.backend_type IS NOT NULL THEN left(session.query, %(characters)s)
            ELSE '' END AS statement
    FROM pg_stat_activity AS session
    WHERE (session.datname = current_database() OR session.backend_type = 'walsender')
        AND session.pid <> pg_backend_pid()
        -- A worker of autovacuum belongs to no role.
        AND (session.usesysid IS NOT NULL OR session.backend_type <> 'autovacuum worker')
        AND (session.backend_xmin IS NOT NULL OR session.backend_xid IS NOT NULL OR session.xact_start IS NOT NULL)
    UNION ALL
    SELECT 'prepared', prepared.gid, NULL, prepared.owner, '',
        date_part('epoch', clock_timestamp() - prepared.prepared), age(prepared.transaction), true, ''
    FROM pg_prepared_xacts AS prepared WHERE prepared.database = current_database()
    UNION ALL
    SELECT 'slot', slot.slot_name, slot.active_pid, '', CASE WHEN slot.active THEN 'active' ELSE 'inactive' END,
        NULL, age(slot.xmin), true, ''
    FROM pg_replication_slots AS slot
    WHERE NOT slot.temporary AND (slot.xmin IS NOT NULL OR NOT slot.active)
) AS held
ORDER BY held.seconds DESC NULLS LAST, held.transactions DESC NULLS LAST, held.kind, held.name
LIMIT %(most)s
