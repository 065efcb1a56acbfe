-- End a pause. Returns whether there was one in force. The workers that receive the notification let the waiting jobs
-- of a task continue (unpause_v1.sql). This function touches no job, so it is quick inside a long transaction.
CREATE FUNCTION pgqueue_resume_v1(p_kind text, p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ended record;
BEGIN
    -- Race: a report that puts a job aside holds this row until its commit (finish_v1.sql). So this waits for it, and
    -- whoever lets the jobs continue afterwards sees that job, too.
    DELETE FROM pgqueue_pause AS pause
    WHERE pause.kind = p_kind AND pause.name = coalesce(p_name, '')
    RETURNING pause.until INTO ended;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(pgqueue_channel_v1(), 'pause');
    RETURN coalesce(ended.until > clock_timestamp(), true);
END $$;
