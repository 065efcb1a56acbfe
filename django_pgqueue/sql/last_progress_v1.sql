-- Return the progress that a job has told, for its error. Recovery does not depend on it, so a role that may not read it
-- recovers the job without.
CREATE FUNCTION pgqueue_last_progress_v1(p_id bigint) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (
        SELECT jsonb_build_object('progress', jsonb_build_object(
            'done', progress.done, 'total', progress.total, 'note', progress.note))
        FROM pgqueue_progress AS progress WHERE progress.job_id = p_id
    );
EXCEPTION WHEN insufficient_privilege THEN
    RETURN NULL;
END $$;
