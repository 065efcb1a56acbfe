-- Let the trigger of payloads refuse rows if the column of their key or group is not there, as after a rename, or the
-- other way round. Without it, the key was NULL, and the jobs had no limit.
CREATE FUNCTION pgqueue_look_for_key_columns_v1(p_look boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $q$
DECLARE
    before constant text := $t$    ELSE
        PERFORM pgqueue_insert_keyed_payloads_v1($t$;
    after constant text := $t$    ELSE
        PERFORM pgqueue_check_key_columns_v1(kind, TG_RELID);
        PERFORM pgqueue_insert_keyed_payloads_v1($t$;
    definition text := pg_get_functiondef('pgqueue_payload_insert_v1'::regproc);
BEGIN
    EXECUTE CASE WHEN p_look THEN replace(definition, before, after) ELSE replace(definition, after, before) END;
END $q$;

SELECT pgqueue_look_for_key_columns_v1(true);
