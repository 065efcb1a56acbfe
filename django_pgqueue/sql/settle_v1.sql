-- Jobs with marks are over: do what depends on it. Unmarked jobs never come here. p_batches may have ended as well, or not
-- yet: close_batch.sql.
--
-- Mark 1: the job has rows in pgqueue_step, which its row in history contains by now. Mark 8: it may have a row in
-- pgqueue_progress. Mark 4: its batch counts it, and may be over by it. Mark 2: others wait for it. What waits for a job
-- or a batch becomes claimable if it waits for nothing else, or is cancelled if that was its condition. This may end
-- batches and other jobs in turn, so it goes on until nothing ends any more: in a loop, because recursion would limit
-- how many jobs may wait for each other.
--
-- Deadlocks: the rows of the jobs that end are locked first, then edges are deleted. Only what is left to others, at the
-- very end, is locked without being deleted (unblock_v1.sql). Everything else that a session may hold for long is skipped
-- (cut_v1.sql), or given up after a quarter of a second.
CREATE FUNCTION pgqueue_settle_v1(p_ended pgqueue_ended_v1[], p_batches bigint[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ended pgqueue_ended_v1[] := p_ended;
    batches bigint[] := '{}';
    others bigint[] := p_batches;
    member record;
    ends record;
    cut record;
    free bigint[] := '{}';
BEGIN
    LOOP
        DELETE FROM pgqueue_step AS step WHERE step.job_id = ANY (ARRAY(
            SELECT one.id FROM unnest(ended) AS one WHERE one.marks & 1 <> 0));
        IF EXISTS (SELECT FROM unnest(ended) AS one WHERE one.marks & 8 <> 0) THEN
            PERFORM pgqueue_forget_progress_v1(ARRAY(
                SELECT one.id FROM unnest(ended) AS one WHERE one.marks & 8 <> 0));
        END IF;
        FOR member IN
            SELECT one.batch, count(*) FILTER (WHERE one.outcome = 'done')::integer AS done,
                count(*) FILTER (WHERE one.outcome = 'failed')::integer AS failed,
                count(*) FILTER (WHERE one.outcome = 'cancelled')::integer AS cancelled
            FROM unnest(ended) AS one WHERE one.marks & 4 <> 0 GROUP BY one.batch
        LOOP
            PERFORM pgqueue_count_v1(member.batch, 0, member.done, member.failed, member.cancelled);
            batches := batches || member.batch;
        END LOOP;

        -- A failed job that is not kept cannot be retried.
        SELECT array_agg(one.id) AS ids, array_agg(one.outcome) AS outcomes,
            array_agg(one.outcome = 'failed' AND NOT EXISTS (
                SELECT FROM pgqueue_job_kept AS job WHERE job.id = one.id)
                AND NOT EXISTS (SELECT FROM pgqueue_batch AS batch WHERE batch.id = one.id)) AS final
        INTO ends FROM unnest(ended) AS one WHERE one.marks & 2 <> 0;
        IF ends.ids IS NULL AND batches || others <> '{}' THEN
            SELECT array_agg(over.id) AS ids, array_agg(over.outcome) AS outcomes, array_agg(over.is_final) AS final
            INTO ends FROM pgqueue_end_batches_v1(batches, others) AS over;
            batches := '{}';
            others := '{}';
        END IF;
        EXIT WHEN ends.ids IS NULL;

        SELECT one.free, one.ended INTO cut FROM pgqueue_cut_v1(ends.ids, ends.outcomes, ends.final) AS one;
        free := free || cut.free;
        ended := cut.ended;
    END LOOP;
    IF free <> '{}' THEN
        PERFORM pgqueue_unblock_v1(free);
    END IF;
END $$;
