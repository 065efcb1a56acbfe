-- Jobs with marks are over: do what depends on it. Unmarked jobs never come here. Mark 1: the job has rows in
-- pgqueue_step, which its row in history contains by now. Mark 8: it may have a row in pgqueue_progress.
CREATE FUNCTION pgqueue_settle_v1(p_ended pgqueue_ended_v1[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM pgqueue_step AS step WHERE step.job_id = ANY (ARRAY(
        SELECT ended.id FROM unnest(p_ended) AS ended WHERE ended.marks & 1 <> 0));
    DELETE FROM pgqueue_progress AS progress WHERE progress.job_id = ANY (ARRAY(
        SELECT ended.id FROM unnest(p_ended) AS ended WHERE ended.marks & 8 <> 0));
END $$;
