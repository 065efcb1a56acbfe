-- Note failed attempts (note_failures_v1.sql). No job depends on that, so if the role may not write there, the note is left
-- out, and the log of the server says so: a refusal here would be one of the outcomes of the jobs.
CREATE FUNCTION pgqueue_note_failures_v2(p_failed pgqueue_failed_v1[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pgqueue_note_failures_v1(p_failed);
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'pgqueue: failed attempts are not counted: %', SQLERRM;
END $$;
