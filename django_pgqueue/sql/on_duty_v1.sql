-- Lock the row of a duty until the end of the transaction. Returns false if another session has it; nobody waits. A row
-- that is missing, such as after a restore without data, is made again; whoever else makes it waits for this one.
CREATE FUNCTION pgqueue_on_duty_v1(p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM pgqueue_duty AS duty WHERE duty.name = p_name FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN true;
    END IF;
    IF EXISTS (SELECT FROM pgqueue_duty AS duty WHERE duty.name = p_name) THEN
        RETURN false;
    END IF;
    INSERT INTO pgqueue_duty (name) VALUES (p_name) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
