-- Open a batch, and return its id. It does not end before it is closed (close_batch.sql), even if it has no members yet.
CREATE FUNCTION pgqueue_open_batch(name text DEFAULT '') RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    opened bigint;
BEGIN
    IF length(pgqueue_open_batch.name) > 200 THEN
        RAISE EXCEPTION 'pgqueue: the name of a batch has at most 200 characters, not %', length(pgqueue_open_batch.name)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_batch (name) VALUES (coalesce(pgqueue_open_batch.name, '')) RETURNING id INTO opened;
    RETURN opened;
END $$;
