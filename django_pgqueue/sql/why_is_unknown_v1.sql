-- Whether a job waits because a worker did not know its task, as the worker has put it (paths.py).
CREATE FUNCTION pgqueue_why_is_unknown_v1(p_reason text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT starts_with(p_reason, 'no task ') OR strpos(p_reason, ' is not a task (') > 0
$$;
