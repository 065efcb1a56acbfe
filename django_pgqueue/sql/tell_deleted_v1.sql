-- Let the functions of composition tell what was deleted by hand from what has ended, or the other way round. They keep
-- their names, so that workers of any release do the same.
--
-- - A batch with members that were deleted is not a success (end_batches_v2.sql).
-- - The end of a parent whose children were left to maintenance is noted at one of its edges, and counts for all of them. Its
--   row may be gone by then because its history is off or its retention has passed: that is no deletion by hand.
-- - "gone" is a parent that was deleted, and "dead" one that has failed for good.
CREATE FUNCTION pgqueue_tell_deleted_v1(p_tells boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    change record;
BEGIN
    FOR change IN
        SELECT given.name,
            CASE WHEN p_tells THEN given.untold ELSE given.told END AS before,
            CASE WHEN p_tells THEN given.told ELSE given.untold END AS after
        FROM (VALUES
            ('pgqueue_settle_v1', 'pgqueue_end_batches_v1(', 'pgqueue_end_batches_v2('),
            ('pgqueue_repair_edges_v1', 'pgqueue_parent_state_v1(over.id) AS state',
                'coalesce(nullif(pgqueue_parent_state_v1(over.id), ''gone''), (
                    SELECT min(noted.overdue) FROM pgqueue_edge AS noted
                    WHERE noted.parent_id = over.id AND noted.overdue IS NOT NULL), ''gone'') AS state'),
            ('pgqueue_cut_v1', 'THEN ''batch '' ELSE ''job '' END',
                'THEN ''batch '' WHEN over.outcome = ''gone'' THEN ''job or batch '' ELSE ''job '' END'),
            ('pgqueue_cut_v1', 'WHEN over.final THEN ''gone''', 'WHEN over.final THEN ''dead'''),
            ('pgqueue_cut_v1',
                'WHEN ''failed'' THEN ''failed'' WHEN ''cancelled'' THEN ''was cancelled''
                        ELSE ''failed or was deleted''',
                'WHEN ''cancelled'' THEN ''was cancelled'' WHEN ''gone'' THEN ''was deleted''
                        ELSE ''failed'''),
            ('pgqueue_sweep_batches_v1', 'ROW(over.id, ''gone'', 2, NULL)', 'ROW(over.id, ''dead'', 2, NULL)')
        ) AS given (name, untold, told)
    LOOP
        EXECUTE replace(pg_get_functiondef(change.name::regproc), change.before, change.after);
    END LOOP;
END $$;

SELECT pgqueue_tell_deleted_v1(true);
