-- Retry the members of a batch that have failed, and return how many. The batch is not over any more, and what holds until
-- it succeeds still waits for that.
CREATE FUNCTION pgqueue_retry_batch_v1(p_batch bigint) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pgqueue_batch AS batch WHERE batch.id = p_batch) THEN
        RAISE EXCEPTION 'pgqueue: there is no batch %', p_batch USING ERRCODE = '23Q06',
            HINT = 'It was never committed, or it is over and its retention has passed.';
    END IF;
    RETURN pgqueue_retry_v1(ARRAY(
        SELECT job.id FROM pgqueue_job_kept AS job WHERE job.batch = p_batch AND job.status = 'failed'));
END $$;
