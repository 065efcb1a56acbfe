-- The statistics end a quarter of an hour from now, like the heartbeats of the workers, which are ahead as well: making the
-- jobs takes minutes, and the pages would show a shop that has just stopped working.
UPDATE pgqueue_demo_stat AS part SET start = part.start + newest.ahead
FROM (
    SELECT date_trunc('minute', clock_timestamp()) + interval '15 minutes' - max(start) AS ahead FROM pgqueue_demo_stat
) AS newest
