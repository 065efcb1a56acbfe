-- Enqueue a job, from plain SQL, triggers and other languages. Returns its id. What is NULL comes from pgqueue_task,
-- and so do the keys that are fixed; for a task that is not there, the worker that claims the job fills it in. Later
-- releases add new arguments to `options`, because a second signature would make every existing call ambiguous. With a
-- unique key, current_setting('pgqueue.enqueue_outcome') says until the end of the transaction what became of the call.
-- Python has the policy of its tasks, and calls _pgqueue_enqueue.
CREATE FUNCTION pgqueue_enqueue(
    task_path text,
    args jsonb DEFAULT '[]',
    kwargs jsonb DEFAULT '{}',
    queue_name text DEFAULT NULL,
    priority integer DEFAULT NULL,
    run_after timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    timeout integer DEFAULT NULL,
    on_lost text DEFAULT NULL,
    metadata jsonb DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    declared pgqueue_task;
    limit_name text;
    missing text;
    max_bytes integer;
    job record;
BEGIN
    IF options ->> 'max_json_bytes' !~ '^[0-9]{1,9}$' THEN
        RAISE EXCEPTION 'pgqueue: max_json_bytes % must be a whole number from 0 to 999999999',
            options -> 'max_json_bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    max_bytes := coalesce((options ->> 'max_json_bytes')::integer, 1048576);
    SELECT task.* INTO declared FROM pgqueue_task AS task WHERE task.task_path = pgqueue_enqueue.task_path;
    limit_name := coalesce(declared.limit_name, task_path);
    options := coalesce(options, '{}');
    IF jsonb_typeof(options) = 'object' THEN  -- _pgqueue_enqueue refuses anything else
        SELECT min(name) INTO missing
        FROM jsonb_array_elements_text(declared.computed_keys) AS name WHERE NOT options ? name;
        IF missing IS NOT NULL THEN
            RAISE EXCEPTION 'pgqueue: the option % is missing, which % computes from its arguments', missing, task_path
                USING ERRCODE = 'invalid_parameter_value', HINT = format(
                    'SQL cannot compute it. Pass its value, or null for none: options => ''{"%s": ...}''', missing);
        END IF;
        IF starts_with(options ->> 'limit_key', limit_name || '/') THEN
            RAISE EXCEPTION 'pgqueue: limit_key % begins with the name of the limit', options -> 'limit_key'
                USING ERRCODE = 'invalid_parameter_value', HINT = format(
                    'Pass only what comes after the slash: %s',
                    substr(options ->> 'limit_key', length(limit_name) + 2));
        ELSIF jsonb_typeof(options -> 'limit_key') = 'string' THEN
            options := options || jsonb_build_object('limit_key', limit_name || '/' || (options ->> 'limit_key'));
        ELSIF NOT options ? 'limit_key' AND declared.limit_name IS NOT NULL THEN
            options := options || jsonb_build_object('limit_key', limit_name);
        END IF;
        IF declared.unique_options IS NOT NULL AND options -> 'unique_key' IS DISTINCT FROM 'null' THEN
            options := declared.unique_options || options;
        END IF;
        IF declared.search IS NOT NULL THEN
            options := jsonb_build_object('search', declared.search) || options;
        END IF;
        options := nullif(options - 'max_json_bytes' - ARRAY(
            SELECT name FROM unnest('{limit_key,group_key,unique_key,tenant}'::text[]) AS name
            WHERE options -> name = 'null'
        ), '{}');
    END IF;
    SELECT one.id, one.outcome INTO job FROM _pgqueue_enqueue(
        task_path, args, kwargs, coalesce(metadata, declared.metadata, '{}'),
        coalesce(queue_name, declared.queue_name, 'default'), coalesce(priority, declared.priority, 0), run_after, NULL,
        expires_at, declared.expires_after, coalesce(max_attempts, declared.max_attempts),
        coalesce(timeout, declared.timeout), coalesce(on_lost, declared.on_lost), max_bytes, options) AS one;
    IF options ->> 'on_conflict' = 'raise' AND job.outcome = 'existing' THEN
        RAISE EXCEPTION 'pgqueue: job % has the unique key %', job.id, quote_literal(options ->> 'unique_key')
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'pgqueue_job_unique';
    ELSIF options IS NOT NULL THEN
        PERFORM set_config('pgqueue.enqueue_outcome', job.outcome, true);
    END IF;
    RETURN job.id;
END $$;

-- The options of a job that another role than the owner of the functions enqueues. A role that may change the table of
-- jobs gets them back as they are. Any other one has only the right to enqueue (manage.py pgqueue roles): what would
-- change, hold up or reveal the jobs of others is refused, and the job carries the name of the role in its context, by
-- which pgqueue_result knows whose it is, so other jobs have no column for this. A role of pgqueue_tenant_role is such
-- a role whatever else it may do, its jobs have its tenant, and a role without a tenant may give its jobs none.
--
-- The role is that of SET ROLE, which the server lets only its members choose, or that of the session. current_user is
-- the owner here. If the functions run with the rights of their callers, the tables are what protects them.
CREATE FUNCTION _pgqueue_enqueue_only(p_options jsonb, p_batch bigint DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    caller text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    own text := pgqueue_tenant();
    given text := p_options ->> 'tenant';
    refused text;
BEGIN
    IF own IS NULL AND (has_table_privilege(caller, 'pgqueue_job', 'UPDATE')
        OR NOT (SELECT prosecdef FROM pg_proc WHERE oid = '_pgqueue_enqueue'::regproc))
    THEN
        RETURN p_options;
    ELSIF given <> own OR given IS NOT NULL AND own IS NULL THEN
        RAISE EXCEPTION 'pgqueue: the role % may not enqueue for the tenant %', caller, given
            USING ERRCODE = 'insufficient_privilege',
                HINT = 'The tenant of a role is in the table pgqueue_tenant_role.';
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
    RETURN coalesce(p_options, '{}') || CASE WHEN own IS NULL THEN '{}' ELSE jsonb_build_object('tenant', own) END
        || jsonb_build_object(
            'context', coalesce(p_options -> 'context', '{}') || jsonb_build_object('role', caller));
END $$;

-- The tenant of the caller: of the role of SET ROLE, or that of the session. NULL: it has none, as with the owner of
-- the tables and with workers. Policies call it. It has the rights of its owner, so that no role reads the table.
CREATE FUNCTION pgqueue_tenant() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT mine.tenant::text FROM pgqueue_tenant_role AS mine
    WHERE mine.role = coalesce(nullif(current_setting('role'), 'none'), session_user)
$$;

-- Return the options of a job with its tenant as the prefix of its unique key, and of its limit key after the limit's
-- name: the jobs of two tenants never share a key. A tenant contains no colon, so no key of another tenant begins with
-- this prefix. NULL: it has no tenant.
CREATE FUNCTION _pgqueue_of_tenant(p_options jsonb, p_tenant text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    limit_name text;
    longest integer;
BEGIN
    IF p_tenant IS NULL OR NOT p_options ?| '{unique_key,limit_key}' THEN
        RETURN p_options;
    END IF;
    IF p_options ? 'unique_key' THEN
        p_options := p_options || jsonb_build_object('unique_key', p_tenant || ':' || (p_options ->> 'unique_key'));
    END IF;
    IF p_options ? 'limit_key' THEN
        limit_name := split_part(p_options ->> 'limit_key', '/', 1);
        p_options := p_options || jsonb_build_object('limit_key', limit_name || '/' || p_tenant || ':'
            || substr(p_options ->> 'limit_key', length(limit_name) + 2));
    END IF;
    longest := greatest(length(p_options ->> 'unique_key'), length(p_options ->> 'limit_key'));
    IF longest > 200 THEN
        RAISE EXCEPTION 'pgqueue: % has % characters with its tenant, but a job can store only 200: use a hash of it',
            CASE WHEN length(p_options ->> 'unique_key') = longest THEN 'unique_key' ELSE 'limit_key' END, longest
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN p_options;
END $$;

-- Enqueue one job. Python calls this, and so does pgqueue_enqueue, for all other callers. The delay and
-- the expiry are computed here, with the database's clock. The outcome is created, or what _pgqueue_insert_unique says
-- of a job with a unique key; then the times belong to this call, and not to the job that has the key. A job
-- never becomes claimable with a time in the past, because workers skip jobs that are below their marks
-- (worker/producer/ranges.py). A job with a limit key that is due takes its place in the wait queue of the key at once.
-- A job that waits for others is blocked, and in no line, until they finish.
CREATE FUNCTION _pgqueue_enqueue(
    p_task_path text, p_args jsonb, p_kwargs jsonb, p_metadata jsonb, p_queue_name text, p_priority integer,
    p_run_after timestamptz, p_delay double precision, p_expires_at timestamptz, p_expires_after double precision,
    p_max_attempts integer, p_timeout integer, p_on_lost text, p_max_bytes integer,
    p_options jsonb,  -- NULL: none
    p_tenant text DEFAULT NULL,  -- or that of the options, which take longer to check
    OUT id bigint, OUT run_after timestamptz, OUT expires_at timestamptz, OUT enqueued_at timestamptz, OUT outcome text
) LANGUAGE plpgsql SET search_path FROM CURRENT
SET standard_conforming_strings = on AS $$
#variable_conflict use_variable
DECLARE
    problem text := _pgqueue_problem(
        p_task_path, p_args, p_kwargs, p_metadata, p_queue_name, p_priority, p_run_after, p_expires_at,
        p_max_attempts, p_timeout, p_on_lost, p_max_bytes);
    new_id bigint;
    is_linked boolean := p_options ?| '{after,after_items,batch}';
    link record;  -- if it names other jobs, or a batch
    marks smallint := 0;
    batch bigint;
    parents bigint[];
    reason text;  -- NULL: it waits for nothing
BEGIN
    IF p_options IS NOT NULL THEN
        problem := coalesce(problem, _pgqueue_options_problem(p_options));
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF session_user <> current_user OR current_setting('role') <> 'none' THEN
        p_options := _pgqueue_enqueue_only(CASE WHEN p_tenant IS NULL THEN p_options
            ELSE coalesce(p_options, '{}') || jsonb_build_object('tenant', p_tenant) END);
        p_tenant := p_options ->> 'tenant';
    END IF;
    IF p_tenant IS NOT NULL OR p_options ? 'tenant' THEN
        p_tenant := coalesce(p_tenant, p_options ->> 'tenant');
        IF p_options ?| '{unique_key,limit_key}' THEN
            p_options := _pgqueue_of_tenant(p_options || jsonb_build_object('tenant', p_tenant), p_tenant);
        END IF;
    END IF;
    new_id := nextval('pgqueue_job_id_seq');
    enqueued_at := clock_timestamp();
    run_after := greatest(coalesce(p_run_after, enqueued_at + p_delay * interval '1 second'), enqueued_at);
    expires_at := coalesce(p_expires_at, run_after + p_expires_after * interval '1 second');
    IF is_linked THEN
        SELECT * INTO link FROM _pgqueue_link(ARRAY[new_id], ARRAY[p_options], NULL, NULL);
        marks := link.marks[1];
        batch := link.batches[1];
        parents := link.parents[1];
        reason := link.reasons[1];
    END IF;
    IF p_options ? 'unique_key' THEN
        SELECT held.id, held.outcome INTO id, outcome FROM _pgqueue_insert_unique(
            new_id, p_task_path, p_args, p_kwargs, p_metadata, p_queue_name, p_priority, run_after, expires_at,
            enqueued_at, p_max_attempts, p_timeout, p_on_lost, p_options, marks, batch, parents, reason) AS held;
    ELSE
        INSERT INTO pgqueue_job_live (
            id, task_path, args, kwargs, metadata, queue_name, priority, run_after, expires_at, enqueued_at,
            max_attempts, timeout, on_lost, limit_key, wait_position, group_key, tenant, context, status,
            waiting_reason, marks, batch, parents, searched
        ) VALUES (
            new_id, p_task_path, p_args, p_kwargs, p_metadata, p_queue_name, p_priority, run_after, expires_at,
            enqueued_at, p_max_attempts, p_timeout, p_on_lost, p_options ->> 'limit_key',
            CASE WHEN p_options ? 'limit_key' AND run_after <= enqueued_at AND reason IS NULL THEN new_id END,
            p_options ->> 'group_key', p_tenant, p_options -> 'context',
            CASE WHEN reason IS NULL THEN 'pending' ELSE 'blocked' END, coalesce(reason, ''), marks, batch, parents,
            CASE WHEN p_options ? 'search' THEN _pgqueue_searched(p_options -> 'search', p_args, p_kwargs) END
        );
        id := new_id;
        outcome := 'created';
    END IF;
    IF is_linked THEN
        PERFORM _pgqueue_linked(
            ARRAY[new_id], ARRAY[id], ARRAY[outcome], ARRAY[p_options], link.batches, link.places, link.edge_parents,
            link.if_failed, link.states, NULL);
    END IF;
END $$;

-- What has become of a job: for the role that has enqueued it, for roles with its tenant, and for roles that may read
-- all jobs. No other gets a row, as if there were no such job. The arguments and the traceback are left out: the caller
-- knows the first, and the second belongs to the role that runs the worker.
CREATE FUNCTION pgqueue_result(
    id bigint,
    OUT status text, OUT is_finished boolean, OUT result jsonb, OUT error_class text, OUT attempts integer,
    OUT enqueued_at timestamptz, OUT started_at timestamptz, OUT finished_at timestamptz
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    caller text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    own text := pgqueue_tenant();
    sees_all boolean := own IS NULL AND has_table_privilege(caller, 'pgqueue_job', 'SELECT');
BEGIN
    RETURN QUERY
    SELECT job.status::text, word.is_terminal, job.result, job.errors -> -1 ->> 'class', job.attempts,
        job.enqueued_at, job.started_at, job.finished_at
    FROM pgqueue_job AS job JOIN pgqueue_status AS word ON word.status = job.status
    WHERE job.id = pgqueue_result.id AND (sees_all OR job.tenant = own
        OR own IS NULL AND job.context ->> 'role' = caller);
END $$;
