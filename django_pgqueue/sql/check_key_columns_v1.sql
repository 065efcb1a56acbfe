-- Raise if a payload table lacks the column that pgqueue_task names as the key of the limit, or as the group.
CREATE FUNCTION pgqueue_check_key_columns_v1(p_kind pgqueue_task, p_table oid) RETURNS void
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
                HINT = 'If it was renamed, run manage.py migrate, or start a worker, with the code that names the new one.';
    END IF;
END $$;
