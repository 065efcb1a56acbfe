-- Lock those of the jobs that are live until the end of the transaction, and mark them: others wait for them. Returns
-- them. A job that has the mark already is only locked against its end.
CREATE FUNCTION pgqueue_mark_v1(p_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    live bigint[] := ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) ORDER BY job.id FOR KEY SHARE);
BEGIN
    PERFORM FROM pgqueue_job_live AS job WHERE job.id = ANY (live) AND job.marks & 2 = 0
    ORDER BY job.id FOR NO KEY UPDATE;
    UPDATE pgqueue_job_live AS job SET marks = job.marks | 2 WHERE job.id = ANY (live) AND job.marks & 2 = 0;
    RETURN live;
END $$;
