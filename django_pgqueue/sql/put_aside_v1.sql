-- Report those of the picked jobs that a claim by SQL must not hand out: they have expired, their task is paused, or no
-- attempt is left (a worker reported a retry too many). Left where they are, they would stay in front of the others,
-- and of the wait queue of their limit key. Returns their ids.
CREATE FUNCTION pgqueue_put_aside_v1(p_ids bigint[], p_worker bigint, p_lease bigint, p_max_attempts integer)
RETURNS bigint[] LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    aside record;
BEGIN
    SELECT array_agg(verdict.id) AS ids, array_agg(verdict.outcome) AS outcomes, array_agg(verdict.reason) AS reasons
    INTO aside
    FROM (
        SELECT job.id,
            CASE WHEN job.expires_at <= clock_timestamp() THEN 'cancelled'
                WHEN pause.id IS NOT NULL THEN 'paused'
                ELSE 'failed' END AS outcome,
            CASE WHEN job.expires_at <= clock_timestamp() THEN format('expired at %s', job.expires_at)
                WHEN pause.id IS NOT NULL THEN left('paused' || coalesce(' by ' || nullif(pause.author, ''), '')
                    || coalesce(': ' || nullif(pause.reason, ''), ''), 500)
                ELSE 'no attempts are left' END AS reason
        FROM pgqueue_job_live AS job
        LEFT JOIN pgqueue_pause AS pause ON pause.kind = 'task' AND pause.name = job.task_path
            AND (pause.until IS NULL OR pause.until > clock_timestamp())
        WHERE job.id = ANY (p_ids) AND (
            job.expires_at <= clock_timestamp() OR pause.id IS NOT NULL
            OR job.attempts - job.forgiven_attempts >= coalesce(job.max_attempts, p_max_attempts))
        ORDER BY job.id
    ) AS verdict;
    IF aside.ids IS NULL THEN
        RETURN '{}';
    END IF;
    -- The report takes back the attempt, except that of a job that fails here, which is not counted.
    UPDATE pgqueue_job_live AS job SET
        status = 'running', attempts = job.attempts + (given.outcome <> 'failed')::integer,
        worker = p_worker, lease = p_lease
    FROM unnest(aside.ids, aside.outcomes) AS given (id, outcome)
    WHERE job.id = ANY (aside.ids) AND job.id = given.id;
    PERFORM pgqueue_finish_v1(
        aside.ids, array_fill(p_lease, ARRAY[cardinality(aside.ids)]), aside.outcomes, NULL, NULL, NULL, NULL, NULL,
        NULL, aside.reasons, 20);
    RETURN aside.ids;
END $$;
