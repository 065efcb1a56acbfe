-- Race: others draw ids at the same time. setval() would set the sequence back to an id that is behind theirs, so the
-- next ids are drawn, too. Only a gap that no session fills between two functions is jumped over.
SELECT CASE WHEN behind.gap <= 1000
    THEN (SELECT max(nextval('pgqueue_job_id_seq')) FROM generate_series(1, behind.gap))
    ELSE setval('pgqueue_job_id_seq', %(id)s::bigint) END
FROM (
    SELECT %(id)s::bigint - last_value + (NOT is_called)::integer AS gap FROM pgqueue_job_id_seq
) AS behind
WHERE behind.gap > 0
