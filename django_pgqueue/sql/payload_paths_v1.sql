-- Return the path of the task to which a payload table belongs, as its trigger says, and the earlier paths. Empty: it
-- has no triggers, or not all of them, or they are disabled. The arguments of a trigger each end with a zero byte.
CREATE FUNCTION pgqueue_payload_paths_v1(p_relation regclass) RETURNS text[] LANGUAGE sql STABLE
SET standard_conforming_strings = on AS $$
    SELECT coalesce((
        SELECT string_to_array(left(encode(trigger.tgargs, 'escape'), -4), '\000') FROM pg_trigger AS trigger
        WHERE trigger.tgrelid = p_relation AND trigger.tgname = 'pgqueue_payload_insert' AND 3 = (
            SELECT count(*) FROM pg_trigger AS every WHERE every.tgrelid = p_relation AND every.tgenabled <> 'D'
                AND every.tgname IN ('pgqueue_payload_insert', 'pgqueue_payload_update', 'pgqueue_payload_delete'))
    ), '{}')
$$;
