-- Give back the jobs of workers that are dead, at most p_limit; returns how many. It spends no attempt. What
-- must not run twice (on_lost = 'fail') fails with the reason. A finish by a worker that returns from the
-- dead finds its lease gone. Race: two supervisors may recover at once: each skips what the other has locked.
CREATE FUNCTION pgqueue_recover_v1(p_workers bigint[], p_limit integer, p_keep_errors integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    lost record;
BEGIN
    SELECT array_agg(job.id) AS ids, array_agg(job.lease) AS leases,
        array_agg(CASE job.on_lost WHEN 'fail' THEN 'failed' ELSE 'release' END) AS outcomes,
        array_agg(CASE job.on_lost WHEN 'fail' THEN jsonb_build_object(
            'class', 'django_pgqueue.exceptions.WorkerLost',
            'message', 'Its worker was lost while it held the job, and the task must not run twice.',
            'traceback', '', 'worker', job.worker::text, 'attempt', job.attempts) END) AS errors
    INTO lost
    FROM (
        SELECT live.* FROM pgqueue_job_live AS live
        WHERE live.status = 'running' AND live.worker = ANY (p_workers)
        ORDER BY live.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) AS job;
    IF lost.ids IS NULL THEN
        RETURN 0;
    END IF;
    RETURN cardinality(pgqueue_finish_v1(
        lost.ids, lost.leases, lost.outcomes, NULL, lost.errors, NULL, NULL, NULL,
        array_fill('its worker was lost'::text, ARRAY[cardinality(lost.ids)]), p_keep_errors));
END $$;
