-- The stable name for plain SQL: what has become of a job that this role has enqueued.
CREATE FUNCTION pgqueue_result(
    id bigint,
    OUT status text, OUT is_finished boolean, OUT result jsonb, OUT error_class text, OUT attempts integer,
    OUT enqueued_at timestamptz, OUT started_at timestamptz, OUT finished_at timestamptz
) RETURNS SETOF record LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT job.status, job.is_finished, job.result, job.error_class, job.attempts,
        job.enqueued_at, job.started_at, job.finished_at
    FROM pgqueue_result_v1(id) AS job
$$;
