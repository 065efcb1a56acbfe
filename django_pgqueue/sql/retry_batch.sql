-- Retry the members of a batch that have failed, and return how many. The batch is not over any more, and what holds until
-- it succeeds still waits for that.
CREATE FUNCTION pgqueue_retry_batch(id bigint) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM pgqueue_batch AS batch WHERE batch.id = pgqueue_retry_batch.id) THEN
        RAISE EXCEPTION 'pgqueue: there is no batch %', pgqueue_retry_batch.id USING ERRCODE = '23Q06',
            HINT = 'It was never committed, or it is over and its retention has passed.';
    END IF;
    RETURN cardinality(pgqueue_retry(ARRAY(
        SELECT job.id FROM pgqueue_job_kept AS job WHERE job.batch = pgqueue_retry_batch.id AND job.status = 'failed')));
END $$;
