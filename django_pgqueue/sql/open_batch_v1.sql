-- Open a batch, and return its id. It does not end before it is closed (close_batch_v1.sql), even if it has no members yet.
CREATE FUNCTION pgqueue_open_batch_v1(p_name text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    opened bigint;
BEGIN
    IF length(p_name) > 200 THEN
        RAISE EXCEPTION 'pgqueue: the name of a batch has at most 200 characters, not %', length(p_name)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_batch (name) VALUES (coalesce(p_name, '')) RETURNING id INTO opened;
    RETURN opened;
END $$;
