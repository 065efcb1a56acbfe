-- Let the ends of jobs leave out what the role has no right to, or the other way round. The functions keep their names, as
-- in search_once_v1.sql.
CREATE FUNCTION pgqueue_leave_out_v1(p_leave boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    change record;
BEGIN
    FOR change IN
        SELECT given.name,
            CASE WHEN p_leave THEN given.needed ELSE given.left_out END AS before,
            CASE WHEN p_leave THEN given.left_out ELSE given.needed END AS after
        FROM (VALUES
            ('pgqueue_finish_v1', 'pgqueue_note_failures_v1(', 'pgqueue_note_failures_v2('),
            ('pgqueue_give_back_v1', $q$(
                    SELECT jsonb_build_object('progress', jsonb_build_object(
                        'done', progress.done, 'total', progress.total, 'note', progress.note))
                    FROM pgqueue_progress AS progress WHERE progress.job_id = job.id)$q$,
                'pgqueue_last_progress_v1(job.id)')
        ) AS given (name, needed, left_out)
    LOOP
        EXECUTE replace(pg_get_functiondef(change.name::regproc), change.before, change.after);
    END LOOP;
END $$;

SELECT pgqueue_leave_out_v1(true);
