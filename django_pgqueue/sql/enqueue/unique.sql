-- Return the job that holds a unique key: the one that waits (scope 'waiting'), or the one that is not over (scope
-- 'live'). NULL: there is none. It is VOLATILE so that each call sees what has been committed until then.
CREATE FUNCTION _pgqueue_twin(p_key text, p_scope text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    IF p_scope = 'live' THEN
        RETURN (SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.unique_key = p_key AND job.unique_scope = 'live');
    END IF;
    RETURN (SELECT job.id FROM pgqueue_job_live AS job
        WHERE job.unique_key = p_key AND job.unique_scope = 'waiting'
            AND job.status IN ('pending', 'retry', 'blocked'));
END $$;

-- Insert a job with a unique key, unless its key is taken. Return the job that has the key now, and the outcome:
-- created (p_id was inserted), existing (the other job, the twin, is unchanged, or is due earlier), or replaced (the
-- twin waits and has taken everything but its id and its history from this call). Who wants an error instead of the
-- twin (on_conflict 'raise') gets 'existing' here and raises it.
--
-- Race: the twin is in a transaction that is still open. The INSERT waits for its end: a commit makes it the twin, and
-- a rollback lets this job in. Race: the twin starts, ends or is cancelled between the INSERT and the statement that
-- reads it. Then the key is free, and the loop begins again. The statements have a new snapshot each, because the
-- function is VOLATILE. Under REPEATABLE READ a twin that is not in the snapshot is a serialization error.
--
-- A call waits at most ten seconds for a transaction that holds its key, if the session has no lock_timeout of its own.
CREATE FUNCTION _pgqueue_insert_unique(
    p_id bigint, p_task_path text, p_args jsonb, p_kwargs jsonb, p_metadata jsonb, p_queue_name text,
    p_priority integer, p_run_after timestamptz, p_expires_at timestamptz, p_enqueued_at timestamptz,
    p_max_attempts integer, p_timeout integer, p_on_lost text, p_options jsonb,
    p_marks smallint, p_batch bigint, p_parents bigint[], p_reason text,  -- what _pgqueue_link says, or 0 and NULL
    OUT id bigint, OUT outcome text
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
    own_timeout constant text := current_setting('lock_timeout');
    key text := p_options ->> 'unique_key';
    scope text := coalesce(p_options ->> 'unique_scope', 'waiting');
    concurrency_key text := p_options ->> 'limit_key';
    left_key text;     -- the limit key of the twin before
    conflict text := coalesce(p_options ->> 'on_conflict', 'existing');
    windowed boolean;  -- the key is taken by its window, so it does not matter what became of the twin
    due timestamptz;
    terms text[] := CASE WHEN p_options ? 'search'
        THEN _pgqueue_searched(p_options -> 'search', p_args, p_kwargs) END;
    ends timestamptz := p_enqueued_at + (p_options ->> 'unique_window')::double precision * interval '1 second';
BEGIN
    PERFORM set_config('lock_timeout', CASE own_timeout WHEN '0' THEN '10s' ELSE own_timeout END, true);
    FOR attempt IN 1..100 LOOP
        id := NULL;
        windowed := false;
        IF ends IS NOT NULL THEN
            -- This waits for a transaction that has changed the row, as the INSERT below does for a twin.
            INSERT INTO pgqueue_window AS taken (unique_key, job_id, until) VALUES (key, p_id, ends)
            ON CONFLICT (unique_key) DO UPDATE SET job_id = excluded.job_id, until = excluded.until
                WHERE taken.until <= clock_timestamp();
            windowed := NOT FOUND;
            IF windowed THEN
                SELECT taken.job_id INTO id FROM pgqueue_window AS taken WHERE taken.unique_key = key;
                CONTINUE WHEN id IS NULL;  -- maintenance has just deleted it: it has finished
            END IF;
        END IF;
        IF NOT windowed THEN
            INSERT INTO pgqueue_job_live (
                id, task_path, args, kwargs, metadata, queue_name, priority, run_after, expires_at, enqueued_at,
                max_attempts, timeout, on_lost, unique_key, unique_scope, limit_key, wait_position, group_key,
                tenant, context, status, waiting_reason, marks, batch, parents, searched
            ) VALUES (
                p_id, p_task_path, p_args, p_kwargs, p_metadata, p_queue_name, p_priority, p_run_after,
                p_expires_at, p_enqueued_at, p_max_attempts, p_timeout, p_on_lost, key, scope, concurrency_key,
                CASE WHEN concurrency_key IS NOT NULL AND p_run_after <= p_enqueued_at
                    AND p_reason IS NULL THEN p_id END,
                p_options ->> 'group_key', p_options ->> 'tenant', p_options -> 'context',
                CASE WHEN p_reason IS NULL THEN 'pending' ELSE 'blocked' END, coalesce(p_reason, ''), p_marks, p_batch,
                p_parents, terms
            ) ON CONFLICT DO NOTHING;
            IF FOUND THEN
                id := p_id;
                outcome := 'created';
                PERFORM set_config('lock_timeout', own_timeout, true);
                RETURN;
            ELSIF ends IS NOT NULL THEN
                DELETE FROM pgqueue_window AS taken WHERE taken.unique_key = key;  -- no job was enqueued with it
            END IF;
            id := _pgqueue_twin(key, scope);
            CONTINUE WHEN id IS NULL;
        END IF;

        outcome := 'existing';
        due := greatest(p_run_after, clock_timestamp());  -- not in the past, however long the INSERT has waited
        IF conflict = 'earliest' THEN
            UPDATE pgqueue_job_live AS job SET run_after = due
            WHERE job.id = id AND job.status IN ('pending', 'retry') AND job.run_after > due;
        ELSIF conflict = 'replace' THEN
            -- Race: a worker may be claiming the twin. This waits for it, and then finds a job that runs.
            SELECT job.limit_key INTO left_key
            FROM pgqueue_job_live AS job WHERE job.id = id AND job.wait_position IS NOT NULL;
            UPDATE pgqueue_job_live AS job SET
                -- A twin in the line of its old limit key leaves it: the claim decides about the new one.
                status = CASE WHEN job.status <> 'blocked' OR job.wait_position IS NULL THEN job.status
                    WHEN job.attempts > 0 THEN 'retry' ELSE 'pending' END,
                limit_key = concurrency_key, wait_position = NULL, group_key = p_options ->> 'group_key',
                tenant = p_options ->> 'tenant', context = p_options -> 'context', task_path = p_task_path,
                args = p_args, kwargs = p_kwargs, metadata = p_metadata, searched = terms, queue_name = p_queue_name,
                priority = p_priority, run_after = due, expires_at = p_expires_at,
                max_attempts = p_max_attempts, timeout = p_timeout, on_lost = p_on_lost,
                -- It has not failed with these arguments, so it gets a new budget, as with a retry by a user.
                forgiven_attempts = job.attempts, crash_count = 0, lost_in_a_row = 0,
                -- A twin that waits for other jobs, or for the end of a pause, goes on waiting.
                waiting_reason = CASE WHEN job.status = 'blocked'
                    AND job.wait_position IS NULL THEN job.waiting_reason ELSE '' END,
                marks = job.marks & ~1, current_step = ''
            WHERE job.id = id AND job.status IN ('pending', 'retry', 'blocked');
            IF FOUND THEN
                outcome := 'replaced';
                DELETE FROM pgqueue_step WHERE job_id = id;  -- they belong to the other arguments
                IF left_key IS NOT NULL THEN
                    PERFORM _pgqueue_release(ARRAY[left_key]);  -- the others may have waited behind the twin
                END IF;
            ELSIF NOT windowed AND (scope = 'waiting' OR NOT EXISTS (
                SELECT FROM pgqueue_job_live AS job WHERE job.id = id
            )) THEN
                CONTINUE;  -- it has started or finished, so the key is free
            END IF;
        END IF;
        PERFORM set_config('lock_timeout', own_timeout, true);
        RETURN;
    END LOOP;
    RAISE EXCEPTION 'pgqueue: the unique key % changes hands too fast', quote_literal(key)
        USING ERRCODE = 'lock_not_available', HINT = 'Try again.';
END $$;
