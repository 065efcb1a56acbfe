-- The batches among these ids, with the counts of their finished members, and of all members.
SELECT batch.id, batch.name, batch.is_open, batch.finished_at IS NOT NULL AS is_finished,
    coalesce(sum(tally.added), 0), coalesce(sum(tally.done), 0), coalesce(sum(tally.failed), 0),
    coalesce(sum(tally.cancelled), 0)
FROM pgqueue_batch AS batch LEFT JOIN pgqueue_tally AS tally ON tally.batch_id = batch.id
WHERE batch.id = ANY (%(ids)s::bigint[])
GROUP BY batch.id
