-- A marked job that is over, as pgqueue_settle_v1 takes it.
CREATE TYPE pgqueue_ended_v1 AS (id bigint, outcome text, marks smallint, batch bigint);
