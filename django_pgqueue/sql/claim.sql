-- The stable name for workers in other languages: SELECT * FROM pgqueue_claim('{mail}', 1, 77).
CREATE FUNCTION pgqueue_claim(
    queues text[], at_most integer, worker bigint, default_max_attempts integer DEFAULT 5,
    OUT id bigint, OUT lease bigint, OUT task_path text, OUT args jsonb, OUT kwargs jsonb, OUT metadata jsonb,
    OUT queue_name text, OUT priority integer, OUT attempts integer, OUT max_attempts integer,
    OUT attempts_left integer, OUT timeout integer, OUT deadline timestamptz, OUT crash_count integer,
    OUT enqueued_at timestamptz, OUT context jsonb
) RETURNS SETOF record LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    claimed bigint[] := pgqueue_claim_v1(queues, at_most, worker, default_max_attempts);
BEGIN
    RETURN QUERY
        SELECT job.id, job.lease, job.task_path::text, job.args, job.kwargs, job.metadata, job.queue_name::text,
            job.priority::integer, job.attempts, coalesce(job.max_attempts, default_max_attempts),
            coalesce(job.max_attempts, default_max_attempts) - job.attempts + job.forgiven_attempts,
            job.timeout, job.deadline, job.crash_count::integer, job.enqueued_at, job.context
        FROM pgqueue_job_live AS job WHERE job.id = ANY (claimed)
        ORDER BY job.priority DESC, job.run_after, job.id;
END $$;
