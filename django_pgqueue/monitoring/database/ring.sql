-- The position of the ring of history: the shelf to which jobs that end now go, 1 to 8.
SELECT ring.current, extract(epoch FROM clock_timestamp() - ring.since)::float8 AS seconds,
    extract(epoch FROM ring.retention)::float8 AS retention
FROM pgqueue_ring AS ring
