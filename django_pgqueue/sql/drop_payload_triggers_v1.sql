-- Drop the triggers of a payload table, as far as it has them.
CREATE FUNCTION pgqueue_drop_payload_triggers_v1(p_relation regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TRIGGER IF EXISTS pgqueue_payload_insert ON %s', p_relation);
    EXECUTE format('DROP TRIGGER IF EXISTS pgqueue_payload_update ON %s', p_relation);
    EXECUTE format('DROP TRIGGER IF EXISTS pgqueue_payload_delete ON %s', p_relation);
END $$;
