-- Make a table the payload table of a task: the migration operation PayloadTriggers calls this. If it belongs to a task
-- already, that one has a new path, and the earlier one stays among the arguments of the trigger: jobs of old code
-- count as its own, and its policy counts until the new one is declared.
CREATE FUNCTION _pgqueue_attach_payload(p_relation regclass, p_task_paths text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    paths text[] := p_task_paths || ARRAY(
        SELECT earlier FROM unnest(_pgqueue_payload_paths(p_relation)) WITH ORDINALITY AS given (earlier, place)
        WHERE earlier <> ALL (p_task_paths) ORDER BY place);
BEGIN
    PERFORM _pgqueue_drop_payload_triggers(p_relation);
    EXECUTE format(
        'CREATE TRIGGER pgqueue_payload_insert AFTER INSERT ON %s REFERENCING NEW TABLE AS new_rows
            FOR EACH STATEMENT EXECUTE FUNCTION _pgqueue_payload_insert(%s)',
        p_relation, (SELECT string_agg(quote_literal(path), ', ' ORDER BY place)
            FROM unnest(paths) WITH ORDINALITY AS given (path, place)));
    EXECUTE format(
        'CREATE TRIGGER pgqueue_payload_update BEFORE UPDATE OF job_id ON %s FOR EACH ROW
            WHEN (OLD.job_id IS DISTINCT FROM NEW.job_id) EXECUTE FUNCTION _pgqueue_payload_update()', p_relation);
    EXECUTE format(
        'CREATE TRIGGER pgqueue_payload_delete AFTER DELETE ON %s REFERENCING OLD TABLE AS old_rows
            FOR EACH STATEMENT EXECUTE FUNCTION _pgqueue_payload_delete()', p_relation);
END $$;

-- Undo the last _pgqueue_attach_payload of a table: it belongs to the task with the earlier path again, or to none.
CREATE FUNCTION _pgqueue_detach_payload(p_relation regclass) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    earlier text[] := (_pgqueue_payload_paths(p_relation))[2:];
BEGIN
    PERFORM _pgqueue_drop_payload_triggers(p_relation);
    IF earlier <> '{}' THEN
        PERFORM _pgqueue_attach_payload(p_relation, earlier);
    END IF;
END $$;

-- Drop the triggers of a payload table, as far as it has them.
CREATE FUNCTION _pgqueue_drop_payload_triggers(p_relation regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TRIGGER IF EXISTS pgqueue_payload_insert ON %s', p_relation);
    EXECUTE format('DROP TRIGGER IF EXISTS pgqueue_payload_update ON %s', p_relation);
    EXECUTE format('DROP TRIGGER IF EXISTS pgqueue_payload_delete ON %s', p_relation);
END $$;

-- Return the path of the task to which a payload table belongs, as its trigger says, and the earlier paths. Empty: it
-- has no triggers, or not all of them, or they are disabled. The arguments of a trigger each end with a zero byte.
CREATE FUNCTION _pgqueue_payload_paths(p_relation regclass) RETURNS text[] LANGUAGE sql STABLE
SET standard_conforming_strings = on AS $$
    SELECT coalesce((
        SELECT string_to_array(left(encode(trigger.tgargs, 'escape'), -4), '\000') FROM pg_trigger AS trigger
        WHERE trigger.tgrelid = p_relation AND trigger.tgname = 'pgqueue_payload_insert' AND 3 = (
            SELECT count(*) FROM pg_trigger AS every WHERE every.tgrelid = p_relation AND every.tgenabled <> 'D'
                AND every.tgname IN ('pgqueue_payload_insert', 'pgqueue_payload_update', 'pgqueue_payload_delete'))
    ), '{}')
$$;

-- Raise if a payload table lacks the column that pgqueue_task names as the key of the limit, or as the group.
CREATE FUNCTION _pgqueue_check_key_columns(p_kind pgqueue_task, p_table oid) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    missing text;
BEGIN
    SELECT wanted.name INTO missing
    FROM unnest(ARRAY[p_kind.limit_column, p_kind.group_column]::text[]) AS wanted (name)
    WHERE wanted.name IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute AS att
        WHERE att.attrelid = p_table AND att.attname = wanted.name AND att.attnum > 0 AND NOT att.attisdropped)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'pgqueue: % has no column %, which is the key or the group of %', p_table::regclass, missing,
            p_kind.task_path
            USING ERRCODE = 'undefined_column',
                HINT = 'If it was renamed, run manage.py migrate, or start a worker, with the code that names the new '
                    'one.';
    END IF;
END $$;
