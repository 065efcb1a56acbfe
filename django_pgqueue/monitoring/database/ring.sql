-- The position of the ring of history, and whether autovacuum is on.
SELECT ring.current, extract(epoch FROM clock_timestamp() - ring.since)::float8,
    extract(epoch FROM ring.retention)::float8
FROM pgqueue_ring AS ring
