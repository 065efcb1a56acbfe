-- Delete the progress of finished jobs. No job depends on that, so a role that may not delete it leaves the rows: a
-- refusal here would be one of the outcome that ends the job.
CREATE FUNCTION pgqueue_forget_progress_v1(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM pgqueue_progress AS progress WHERE progress.job_id = ANY (p_ids);
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$;
