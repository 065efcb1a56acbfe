-- After a DELETE in a payload table, also by a cascade: cancel the jobs of the rows; running ones are asked to stop.
--
-- Race: a worker claims or finishes a job at this moment. pgqueue_cancel waits for its row, and then asks it to stop,
-- or finds nothing. A worker that has claimed it, but has not read the row yet, ends it as cancelled.
CREATE FUNCTION pgqueue_payload_delete_v1() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ids bigint[];
BEGIN
    SELECT array_agg(gone.job_id) INTO ids FROM old_rows AS gone;
    ids := ARRAY(SELECT job.id FROM pgqueue_job_live AS job WHERE job.id = ANY (ids));
    IF ids <> '{}' THEN
        PERFORM pgqueue_cancel(ids, format('its row in %s was deleted', TG_TABLE_NAME));
    END IF;
    RETURN NULL;
END $$;
