-- Refuse another key for a payload: it is the id of its job.
CREATE FUNCTION pgqueue_payload_update_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'pgqueue: job_id of a row in % never changes (% to %)', TG_TABLE_NAME, OLD.job_id, NEW.job_id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'pgqueue_payload_key', TABLE = TG_TABLE_NAME,
            SCHEMA = TG_TABLE_SCHEMA, COLUMN = 'job_id', HINT = 'Insert another row, and delete this one.';
END $$;
