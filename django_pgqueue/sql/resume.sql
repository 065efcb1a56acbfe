-- End a pause. Returns whether there was one in force. The workers that receive the notification let the waiting jobs
-- of a task continue (unpause_v1.sql). This function touches no job, so it is quick inside a long transaction.
CREATE FUNCTION pgqueue_resume(kind text, name text DEFAULT '') RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    ended record;
BEGIN
    -- Race: a report that puts a job aside holds this row until its commit (finish_v1.sql). So this waits for it, and
    -- whoever lets the jobs continue afterwards sees that job, too.
    DELETE FROM pgqueue_pause AS pause
    WHERE pause.kind = pgqueue_resume.kind AND pause.name = coalesce(pgqueue_resume.name, '')
    RETURNING pause.until INTO ended;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(pgqueue_channel_v1(), 'pause');
    RETURN coalesce(ended.until > clock_timestamp(), true);
END $$;
