-- Race: who asks again may hold the row, in a transaction that is still open. The worker does not wait for it, and
-- finds the row the next time.
UPDATE pgqueue_stack AS asked SET taken_at = clock_timestamp(), lines = given.lines
FROM unnest(%s::bigint[], %s::bigint[], %s::text[]) AS given (id, lease, lines)
WHERE asked.job_id = given.id AND asked.lease = given.lease AND asked.job_id IN (
    SELECT free.job_id FROM pgqueue_stack AS free WHERE free.job_id = ANY (%s::bigint[])
    FOR UPDATE SKIP LOCKED)
