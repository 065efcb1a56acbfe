-- Internal. The state of each rate: when all starts so far are paid for, so that the whole burst is allowed again. A
-- row is updated with each start, so each page keeps room for a new version of its rows.
CREATE TABLE pgqueue_rate (
    key varchar(200) COLLATE "C" PRIMARY KEY,
    tat timestamptz NOT NULL
) WITH (fillfactor = 50);
