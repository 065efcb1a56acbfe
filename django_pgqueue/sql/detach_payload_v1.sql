-- Undo the last pgqueue_attach_payload_v1 of a table: it belongs to the task with the earlier path again, or to none.
CREATE FUNCTION pgqueue_detach_payload_v1(p_relation regclass) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    earlier text[] := (pgqueue_payload_paths_v1(p_relation))[2:];
BEGIN
    PERFORM pgqueue_drop_payload_triggers_v1(p_relation);
    IF earlier <> '{}' THEN
        PERFORM pgqueue_attach_payload_v1(p_relation, earlier);
    END IF;
END $$;
