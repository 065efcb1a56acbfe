-- How many members a batch has, how many of them are not over, and how the others ended. NULL: there is no such batch.
CREATE FUNCTION pgqueue_batch_counts(
    id bigint, OUT added bigint, OUT live bigint, OUT done bigint, OUT failed bigint, OUT cancelled bigint
) RETURNS SETOF record LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT counted.added, counted.added - counted.done - counted.failed - counted.cancelled, counted.done,
        counted.failed, counted.cancelled
    FROM (
        SELECT coalesce(sum(tally.added), 0) AS added, coalesce(sum(tally.done), 0) AS done,
            coalesce(sum(tally.failed), 0) AS failed, coalesce(sum(tally.cancelled), 0) AS cancelled
        FROM pgqueue_tally AS tally WHERE tally.batch_id = pgqueue_batch_counts.id
    ) AS counted
    WHERE EXISTS (SELECT FROM pgqueue_batch AS batch WHERE batch.id = pgqueue_batch_counts.id)
$$;
