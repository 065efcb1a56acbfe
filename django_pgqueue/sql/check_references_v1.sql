-- Check now the foreign keys that reference a table, which Django makes deferrable: at the commit it would be too late to
-- undo only the deletion of these rows.
CREATE FUNCTION pgqueue_check_references_v1(p_relation regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    names text;
BEGIN
    SELECT string_agg(format('%I.%I', schema.nspname, reference.conname), ', ') INTO names
    FROM pg_constraint AS reference JOIN pg_namespace AS schema ON schema.oid = reference.connamespace
    WHERE reference.contype = 'f' AND reference.confrelid = p_relation AND reference.condeferrable;
    IF names IS NOT NULL THEN
        EXECUTE format('SET CONSTRAINTS %s IMMEDIATE', names);
        EXECUTE format('SET CONSTRAINTS %s DEFERRED', names);
    END IF;
END $$;
