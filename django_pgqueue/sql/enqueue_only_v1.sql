-- The options of a job that another role than the owner of the functions enqueues. A role that may change the table of
-- jobs gets them back as they are. Any other one has only the right to enqueue (manage.py pgqueue roles): what would
-- change, hold up or reveal the jobs of others is refused, and the job carries the name of the role in its context, by
-- which pgqueue_result knows whose it is. So other jobs have no column for this.
--
-- The role is that of SET ROLE, which the server lets only its members choose, or that of the session. current_user is
-- the owner here. If the functions run with the rights of their callers, the tables are what protects them.
--
-- The context is checked here, because pgqueue_enqueue_many_v1 takes that of all jobs unchecked from Python.
CREATE FUNCTION pgqueue_enqueue_only_v1(p_options jsonb, p_batch bigint DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    caller text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    refused text;
BEGIN
    IF has_table_privilege(caller, 'pgqueue_job', 'UPDATE')
        OR NOT (SELECT prosecdef FROM pg_proc WHERE oid = 'pgqueue_enqueue_v1'::regproc)
    THEN
        RETURN p_options;
    END IF;
    refused := CASE
        WHEN p_batch IS NOT NULL THEN 'batch'
        WHEN p_options ->> 'on_conflict' IN ('replace', 'earliest') THEN 'on_conflict ' || (p_options ->> 'on_conflict')
        ELSE (
            SELECT min(key) FROM jsonb_object_keys(p_options) AS key
            WHERE key IN ('after', 'after_items', 'batch', 'if_failed'))
    END;
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: the role % may only enqueue, and not use the option %', caller, refused
            USING ERRCODE = 'insufficient_privilege',
                HINT = 'It would touch jobs of others. Enqueue this job with a role that may change jobs.';
    END IF;
    IF pgqueue_context_problem_v1(p_options -> 'context') IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', pgqueue_context_problem_v1(p_options -> 'context')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN coalesce(p_options, '{}') || jsonb_build_object(
        'context', coalesce(p_options -> 'context', '{}') || jsonb_build_object('role', caller));
END $$;
