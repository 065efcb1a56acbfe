-- Enqueue one job. Python calls this, and so does pgqueue_enqueue, the stable name for all other callers. The
-- delay and the expiry are computed here, with the database's clock. The outcome is created, or what
-- pgqueue_insert_unique_v1 says of a job with a unique key; then the times are those of this call, and not those of the
-- job that has the key. A job never becomes claimable with a time in the past, because workers skip jobs that are below their marks (worker/producer/ranges.py). A job with a
-- limit key that is due takes its place in the wait queue of the key at once. A job that waits for others is blocked, and
-- in no line, until they are over.
CREATE FUNCTION pgqueue_enqueue_v1(
    p_task_path text, p_args jsonb, p_kwargs jsonb, p_metadata jsonb, p_queue_name text, p_priority integer,
    p_run_after timestamptz, p_delay double precision, p_expires_at timestamptz, p_expires_after double precision,
    p_max_attempts integer, p_timeout integer, p_on_lost text, p_max_bytes integer,
    p_options jsonb,  -- NULL: none
    OUT id bigint, OUT run_after timestamptz, OUT expires_at timestamptz, OUT enqueued_at timestamptz, OUT outcome text
) LANGUAGE plpgsql SET search_path FROM CURRENT
SET standard_conforming_strings = on AS $$
#variable_conflict use_variable
DECLARE
    problem text := pgqueue_problem_v1(
        p_task_path, p_args, p_kwargs, p_metadata, p_queue_name, p_priority, p_run_after, p_expires_at,
        p_max_attempts, p_timeout, p_on_lost, p_max_bytes);
    limit_key text;
    wait_position bigint;
    new_id bigint;
    is_linked boolean := p_options ?| '{after,after_items,batch}';
    link record;  -- if it names other jobs, or a batch
    marks smallint := 0;
    batch bigint;
    parents bigint[];
    reason text;  -- NULL: it waits for nothing
BEGIN
    IF p_options IS NOT NULL THEN
        problem := coalesce(problem, pgqueue_options_problem_v1(p_options));
        limit_key := p_options ->> 'limit_key';
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF session_user <> current_user OR current_setting('role') <> 'none' THEN
        p_options := pgqueue_enqueue_only_v1(p_options);
    END IF;
    id := nextval('pgqueue_job_id_seq');
    new_id := id;
    enqueued_at := clock_timestamp();
    run_after := greatest(coalesce(p_run_after, enqueued_at + p_delay * interval '1 second'), enqueued_at);
    expires_at := coalesce(p_expires_at, run_after + p_expires_after * interval '1 second');
    IF is_linked THEN
        SELECT * INTO link FROM pgqueue_link_v1(ARRAY[id], ARRAY[p_options], NULL, NULL);
        marks := link.marks[1];
        batch := link.batches[1];
        parents := link.parents[1];
        reason := link.reasons[1];
    END IF;
    IF p_options ? 'unique_key' THEN
        SELECT held.id, held.outcome INTO id, outcome FROM pgqueue_insert_unique_v1(
            id, p_task_path, p_args, p_kwargs, p_metadata, p_queue_name, p_priority, run_after, expires_at,
            enqueued_at, p_max_attempts, p_timeout, p_on_lost, p_options, marks, batch, parents, reason) AS held;
        IF is_linked THEN
            PERFORM pgqueue_linked_v1(
                ARRAY[new_id], ARRAY[outcome], link.batches, link.places, link.edge_parents, link.if_failed, link.states);
            PERFORM pgqueue_meet_v1(
                ARRAY[id], ARRAY[outcome], ARRAY[p_options], link.batches, link.places, link.edge_parents, link.states,
                NULL);
        END IF;
        RETURN;
    END IF;
    outcome := 'created';
    IF limit_key IS NOT NULL AND run_after <= enqueued_at AND reason IS NULL THEN
        wait_position := id;
    END IF;
    INSERT INTO pgqueue_job_live (
        id, task_path, args, kwargs, metadata, queue_name, priority, run_after, expires_at, enqueued_at,
        max_attempts, timeout, on_lost, limit_key, wait_position, group_key, context, status,
        waiting_reason, marks, batch, parents
    ) VALUES (
        id, p_task_path, p_args, p_kwargs, p_metadata, p_queue_name, p_priority, run_after, expires_at,
        enqueued_at, p_max_attempts, p_timeout, p_on_lost, limit_key, wait_position, p_options ->> 'group_key',
        p_options -> 'context', CASE WHEN reason IS NULL THEN 'pending' ELSE 'blocked' END, coalesce(reason, ''), marks,
        batch, parents
    );
    IF is_linked THEN
        PERFORM pgqueue_linked_v1(
            ARRAY[id], ARRAY[outcome], link.batches, link.places, link.edge_parents, link.if_failed, link.states);
    END IF;
END $$;
