-- Make a table the payload table of a task: the migration operation PayloadTriggers calls this. If it belongs to a task
-- already, that one has a new path, and the earlier one stays among the arguments of the trigger: jobs of old code count
-- as its own, and its policy counts until the new one is declared.
CREATE FUNCTION pgqueue_attach_payload_v1(p_relation regclass, p_task_paths text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    paths text[] := p_task_paths || ARRAY(
        SELECT earlier FROM unnest(pgqueue_payload_paths_v1(p_relation)) WITH ORDINALITY AS given (earlier, place)
        WHERE earlier <> ALL (p_task_paths) ORDER BY place);
BEGIN
    PERFORM pgqueue_drop_payload_triggers_v1(p_relation);
    EXECUTE format(
        'CREATE TRIGGER pgqueue_payload_insert AFTER INSERT ON %s REFERENCING NEW TABLE AS new_rows
            FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_payload_insert_v1(%s)',
        p_relation, (SELECT string_agg(quote_literal(path), ', ' ORDER BY place)
            FROM unnest(paths) WITH ORDINALITY AS given (path, place)));
    EXECUTE format(
        'CREATE TRIGGER pgqueue_payload_update BEFORE UPDATE OF job_id ON %s FOR EACH ROW
            WHEN (OLD.job_id IS DISTINCT FROM NEW.job_id) EXECUTE FUNCTION pgqueue_payload_update_v1()', p_relation);
    EXECUTE format(
        'CREATE TRIGGER pgqueue_payload_delete AFTER DELETE ON %s REFERENCING OLD TABLE AS old_rows
            FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_payload_delete_v1()', p_relation);
END $$;
