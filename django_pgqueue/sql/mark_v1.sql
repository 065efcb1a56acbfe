-- Lock those of the jobs that are live until the end of the transaction, and mark them: others wait for them. Returns
-- them. They are locked in one pass, in the order of id. If all have the mark already, a weak lock against their end is
-- enough, which others may share. With p_skips, jobs that another session has locked are left out: for a caller that holds locks
-- of other jobs already.
CREATE FUNCTION pgqueue_mark_v1(p_ids bigint[], p_skips boolean DEFAULT false) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    live bigint[];
BEGIN
    IF p_skips THEN
        live := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids)
            ORDER BY job.id FOR NO KEY UPDATE SKIP LOCKED);
    ELSIF EXISTS (SELECT FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) AND job.marks & 2 = 0) THEN
        live := ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) ORDER BY job.id FOR NO KEY UPDATE);
    ELSE
        RETURN ARRAY(
            SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (p_ids) AND job.marks & 2 <> 0
            ORDER BY job.id FOR KEY SHARE);
    END IF;
    UPDATE pgqueue_job_live AS job SET marks = job.marks | 2 WHERE job.id = ANY (live) AND job.marks & 2 = 0;
    RETURN live;
END $$;
