-- Write the policy of the task into jobs that were enqueued without one (with plain SQL), before they run, so
-- that recovery does not need to load the task. Returns the ids of jobs that have expired because of it.
CREATE FUNCTION pgqueue_fill_policy_v1(
    p_ids bigint[], p_leases bigint[], p_max_attempts integer[], p_timeouts integer[], p_on_lost text[],
    p_expires_after double precision[]
) RETURNS SETOF bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
    WITH filled AS (
        UPDATE pgqueue_job_live AS job SET
            max_attempts = coalesce(job.max_attempts, given.max_attempts),
            timeout = coalesce(job.timeout, given.timeout),
            on_lost = coalesce(job.on_lost, given.on_lost),
            deadline = coalesce(job.deadline, job.last_attempted_at + given.timeout * interval '1 second'),
            expires_at = coalesce(job.expires_at,
                greatest(job.enqueued_at, job.run_after) + given.expires_after * interval '1 second')
        FROM unnest(p_ids, p_leases, p_max_attempts, p_timeouts, p_on_lost, p_expires_after)
            AS given (id, lease, max_attempts, timeout, on_lost, expires_after)
        WHERE job.id = given.id AND job.lease = given.lease
        RETURNING job.id, job.expires_at
    )
    SELECT filled.id FROM filled WHERE filled.expires_at <= clock_timestamp()
$$;
