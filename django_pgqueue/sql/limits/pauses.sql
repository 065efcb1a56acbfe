-- Pause a queue, a task, everything, or some jobs, until a time (NULL: until a user resumes it). The kind of some jobs
-- is group, limit_key, or argument, for a task with a value: 'shop.tasks.sync kwargs.tenant=acme'. duration counts from
-- now, instead of until. A pause of the same target is replaced. Workers learn it by the notification, at commit.
-- Returns the id of the pause.
CREATE FUNCTION pgqueue_pause(
    kind text, name text DEFAULT '', reason text DEFAULT '', author text DEFAULT '', until timestamptz DEFAULT NULL,
    duration interval DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT
SET standard_conforming_strings = on AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := clock_timestamp();
    ends timestamptz := coalesce(until, CASE
        WHEN duration > interval '100 years' THEN 'infinity' WHEN duration < interval '0' THEN '-infinity'
        ELSE now + duration END);
    paused bigint;
    problem text := CASE
        WHEN kind IS NULL OR kind NOT IN ('queue', 'task', 'all', 'group', 'limit_key', 'argument')
            THEN format('pause: kind %L is not one of queue, task, all, group, limit_key, argument', kind)
        WHEN kind = 'all' AND coalesce(name, '') <> ''
            THEN format('pause: a pause of everything has no name, but %L was given', name)
        WHEN kind IN ('group', 'limit_key') AND length(coalesce(name, '')) NOT BETWEEN 1 AND 200
            THEN format('pause: a %s has 1 to 200 characters, not %s', kind, length(coalesce(name, '')))
        WHEN kind = 'argument'
            AND (length(name) <= 255 AND name ~ '^[^ ]+ (kwargs[.][[:alnum:]_]+|args[.][0-9]+)=') IS NOT TRUE
            THEN format('pause: %L is no argument: write up to 255 characters, such as '
                'shop.tasks.sync kwargs.tenant=acme', name)
        WHEN kind <> 'all' THEN _pgqueue_problem(
            CASE kind WHEN 'task' THEN name WHEN 'argument' THEN split_part(name, ' ', 1) ELSE 'a.task' END,
            '[]', '{}', '{}',
            CASE WHEN kind = 'queue' THEN name ELSE 'default' END, 0, NULL, NULL, NULL, NULL, NULL, NULL)
    END;
BEGIN
    problem := coalesce(problem, CASE
        WHEN length(reason) > 400 THEN 'pause: the reason has more than 400 characters'
        WHEN length(author) > 150 THEN 'pause: the author has more than 150 characters'
        WHEN num_nonnulls(until, duration) = 2 THEN 'pause: give until or a duration, not both'
        WHEN ends <= now THEN format('pause: the end %s is in the past', ends)
        WHEN ends > now + interval '100 years' THEN format('pause: the end %s is more than 100 years ahead', ends)
    END);
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO pgqueue_pause AS pause (kind, name, reason, author, paused_at, until)
    VALUES (kind, coalesce(name, ''), coalesce(reason, ''), coalesce(author, ''), now, ends)
    ON CONFLICT (kind, name) DO UPDATE SET
        reason = excluded.reason, author = excluded.author, paused_at = excluded.paused_at, until = excluded.until
    RETURNING pause.id INTO paused;
    PERFORM pg_notify(_pgqueue_channel(), 'pause');
    RETURN paused;
END $$;

-- End a pause. Returns whether there was one in force. The workers that receive the notification let the waiting jobs
-- of a task continue (_pgqueue_unpause). This function touches no job, so it is quick inside a long transaction.
CREATE FUNCTION pgqueue_resume(kind text, name text DEFAULT '') RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    ended record;
BEGIN
    -- Race: a report that puts a job aside holds this row until its commit (_pgqueue_finish), so this waits for it, and
    -- whoever lets the jobs continue afterwards sees that job, too.
    DELETE FROM pgqueue_pause AS pause
    WHERE pause.kind = pgqueue_resume.kind AND pause.name = coalesce(pgqueue_resume.name, '')
    RETURNING pause.until INTO ended;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(_pgqueue_channel(), 'pause');
    RETURN coalesce(ended.until > clock_timestamp(), true);
END $$;

-- Whether a pause keeps a job from starting. An argument that is missing, or that is null, has no value.
CREATE FUNCTION _pgqueue_is_paused_by(p_pause pgqueue_pause, p_job pgqueue_job) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_pause.kind
        WHEN 'all' THEN true
        WHEN 'queue' THEN p_pause.name = p_job.queue_name
        WHEN 'task' THEN p_pause.name = p_job.task_path
        WHEN 'group' THEN p_pause.name = p_job.group_key COLLATE "default"
        WHEN 'limit_key' THEN p_pause.name = p_job.limit_key COLLATE "default"
        ELSE p_job.task_path = split_part(p_pause.name, ' ', 1)
            AND substr(p_pause.name, strpos(p_pause.name, '=') + 1)
                = jsonb_build_object('args', p_job.args, 'kwargs', p_job.kwargs)
                    #>> string_to_array(split_part(split_part(p_pause.name, '=', 1), ' ', 2), '.')
        END
$$;

-- The reason of a job that a pause puts aside. A pause that is narrower than a task is named by its id, by which its
-- jobs are found when it ends.
CREATE FUNCTION _pgqueue_pause_reason(p_pause pgqueue_pause) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT left('paused' || CASE WHEN p_pause.kind <> 'task' THEN ' (pause ' || p_pause.id || ')' ELSE '' END
        || coalesce(' by ' || nullif(p_pause.author, ''), '') || coalesce(': ' || nullif(p_pause.reason, ''), ''), 500)
$$;

-- Return which of these jobs are to be put aside, because their task, their group, their limit key or an argument is
-- paused, with the reason of each. Without such a pause, no job is read.
CREATE FUNCTION _pgqueue_put_aside(p_ids bigint[]) RETURNS TABLE (id bigint, reason text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT DISTINCT ON (held.id) held.id, _pgqueue_pause_reason(pause)
    FROM pgqueue_pause AS pause CROSS JOIN LATERAL (
        SELECT job.id FROM pgqueue_job_live AS job
        WHERE job.id = ANY (p_ids) AND _pgqueue_is_paused_by(pause, job::pgqueue_job) OFFSET 0
    ) AS held
    WHERE pause.kind NOT IN ('all', 'queue') AND (pause.until IS NULL OR pause.until > clock_timestamp())
    ORDER BY held.id, pause.kind = 'task' DESC, pause.id
$$;

-- Let at most p_limit jobs continue that wait for a pause that has ended: it was resumed, its end has passed, or its
-- row was deleted. Workers call this when a pause ends, and maintenance repeats it, so no job stays behind, however
-- quickly a task is paused and resumed. A job that another pause holds is put aside again by the next claim. Returns
-- how many jobs continue: p_limit if there may be more, and NULL if another session is doing this.
--
-- All jobs of one call are due at the same moment, so they run in the order of their ids. A job whose time was edited
-- while it waited keeps a later time.
CREATE FUNCTION _pgqueue_unpause(p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    task text := '';
    why text := '';
    now timestamptz := clock_timestamp();
    batch integer;
    freed integer := 0;
BEGIN
    -- Two at once would be correct, too, but their jobs would be mixed.
    IF NOT _pgqueue_on_duty('unpause') THEN
        RETURN NULL;
    END IF;
    -- Race: a report that is putting a job aside holds the row of the pause. Then the next call deletes it, and finds
    -- that job.
    DELETE FROM pgqueue_pause AS pause WHERE pause.id = ANY (ARRAY(
        SELECT over.id FROM pgqueue_pause AS over WHERE over.until <= clock_timestamp()
        ORDER BY over.id FOR UPDATE SKIP LOCKED));
    LOOP
        SELECT job.task_path, job.waiting_reason INTO task, why FROM pgqueue_job_live AS job
        WHERE job.status = 'blocked' AND starts_with(job.waiting_reason, 'paused')
            AND (job.task_path, job.waiting_reason) > (task, why)
        ORDER BY job.task_path, job.waiting_reason, job.id LIMIT 1;
        EXIT WHEN NOT FOUND;
        CONTINUE WHEN EXISTS (
            SELECT FROM pgqueue_pause AS pause
            WHERE (pause.kind = 'task' AND pause.name = task
                OR pause.kind NOT IN ('all', 'queue', 'task') AND _pgqueue_pause_reason(pause) = why)
                AND (pause.until IS NULL OR pause.until > clock_timestamp()));
        UPDATE pgqueue_job_live AS job SET
            status = CASE WHEN job.attempts > 0 THEN 'retry' ELSE 'pending' END,
            run_after = greatest(job.run_after, now), waiting_reason = ''
        WHERE job.id = ANY (ARRAY(
            SELECT waiting.id FROM pgqueue_job_live AS waiting
            WHERE waiting.status = 'blocked' AND starts_with(waiting.waiting_reason, 'paused')
                AND waiting.task_path = task AND waiting.waiting_reason = why
            ORDER BY waiting.id LIMIT p_limit - freed FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS batch = ROW_COUNT;
        freed := freed + batch;
        EXIT WHEN freed >= p_limit;
    END LOOP;
    RETURN freed;
END $$;
