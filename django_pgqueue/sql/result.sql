-- What has become of a job: for the role that has enqueued it, and for roles that may read all jobs. Nobody else gets a
-- row, as if there were no such job. The arguments and the traceback are left out: the caller knows the first, and the
-- second belongs to those who run the worker.
CREATE FUNCTION pgqueue_result(
    id bigint,
    OUT status text, OUT is_finished boolean, OUT result jsonb, OUT error_class text, OUT attempts integer,
    OUT enqueued_at timestamptz, OUT started_at timestamptz, OUT finished_at timestamptz
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    caller text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    sees_all boolean := has_table_privilege(caller, 'pgqueue_job', 'SELECT');
BEGIN
    RETURN QUERY
    SELECT job.status::text, word.is_terminal, job.result, job.errors -> -1 ->> 'class', job.attempts,
        job.enqueued_at, job.started_at, job.finished_at
    FROM pgqueue_job AS job JOIN pgqueue_status AS word ON word.status = job.status
    WHERE job.id = pgqueue_result.id AND (sees_all OR job.context ->> 'role' = caller);
END $$;
