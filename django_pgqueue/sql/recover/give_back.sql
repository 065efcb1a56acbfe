-- Requeue jobs whose process is gone. This spends no attempt. A job that counts a crash fails at the limit, and a job
-- that must not run twice (on_lost = 'fail') fails if it had started. Return how many jobs were accepted; the others
-- had lost their lease. notable has an object for each job that is logged: it failed or was cancelled here (it had been
-- asked to, or met a twin), or it counts a crash.
--
-- Race: recovery and the worker may both take back a job. The first UPDATE, or the caller, locks its row, so the second
-- one finds another lease.
CREATE FUNCTION _pgqueue_give_back(
    p_ids bigint[],
    p_leases bigint[],
    p_crashed boolean[],  -- its process ended, and nothing else: it counts a crash
    p_lost boolean[],     -- more than its process ended: it counts a crash if its last run was lost as well
    p_begun boolean[],    -- whether it may have started
    p_reason text, p_delay double precision, p_crash_limit integer, p_keep_errors integer,
    OUT jobs integer, OUT notable jsonb
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    shown jsonb;
    stacks jsonb;
    lost record;
    finished record;
BEGIN
    -- The progress that they have reported, and what they did at their end, for their errors. A role that may not read
    -- them recovers the jobs without.
    BEGIN
        shown := (
            SELECT jsonb_object_agg(progress.job_id, jsonb_build_object('progress', jsonb_build_object(
                'done', progress.done, 'total', progress.total, 'note', progress.note)))
            FROM pgqueue_progress AS progress WHERE progress.job_id = ANY (p_ids));
        stacks := (
            SELECT jsonb_object_agg(kept.job_id, kept.lines)
            FROM unnest(p_ids, p_leases) AS given (id, lease)
            JOIN pgqueue_stack AS kept ON kept.job_id = given.id AND kept.lease = given.lease);
    EXCEPTION WHEN insufficient_privilege THEN
        NULL;
    END;
    UPDATE pgqueue_job_live AS job SET
        crash_count = least(
            job.crash_count + (given.crashed OR given.lost AND job.lost_in_a_row > 0)::integer, 32767),
        lost_in_a_row = least(job.lost_in_a_row + given.lost::integer, 32767)
    FROM unnest(p_ids, p_leases, p_crashed, p_lost) AS given (id, lease, crashed, lost)
    WHERE job.id = given.id AND job.lease = given.lease AND (given.crashed OR given.lost);

    SELECT array_agg(fate.id) AS ids, array_agg(fate.lease) AS leases,
        array_agg(CASE WHEN fate.error_class IS NULL THEN 'release' ELSE 'failed' END) AS outcomes,
        array_agg(CASE WHEN fate.error_class IS NOT NULL THEN jsonb_build_object(
            'class', 'django_pgqueue.exceptions.' || fate.error_class, 'message', fate.reason,
            'traceback', coalesce(stacks ->> fate.id::text, ''),
            'worker', fate.worker::text, 'attempt', fate.attempts) || fate.progress END) AS errors,
        array_agg(fate.reason) AS reasons,
        array_agg(CASE WHEN fate.error_class IS NULL THEN p_delay END) AS delays,
        array_agg(jsonb_build_object(
            'id', fate.id, 'task_path', fate.task_path, 'queue_name', fate.queue_name, 'attempts', fate.attempts,
            'forgiven_attempts', fate.forgiven_attempts, 'max_attempts', fate.max_attempts, 'outcome', fate.outcome,
            'error_class', 'django_pgqueue.exceptions.' || fate.error_class, 'reason', fate.reason
        )) AS fates
    INTO lost
    FROM (
        SELECT job.*, verdict.error_class,
            CASE WHEN job.current_step <> '' THEN jsonb_build_object('step', job.current_step) ELSE '{}' END
                || CASE WHEN job.marks & 8 <> 0 THEN coalesce(shown -> job.id::text, '{}') ELSE '{}' END AS progress,
            -- In the order of _pgqueue_finish: a failure comes before a cancel, and a cancel before a crash.
            CASE
                WHEN verdict.error_class IS NOT NULL THEN 'failed'
                WHEN job.cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN verdict.counts THEN 'crash'
            END AS outcome,
            CASE
                WHEN verdict.error_class = 'TooManyCrashes' THEN
                    format('%s. Its process has died %s times while it ran, which is the limit.',
                        p_reason, job.crash_count)
                WHEN verdict.error_class = 'WorkerLost' THEN p_reason || '. The task must not run twice.'
                WHEN verdict.counts THEN
                    format('%s (crash %s of at most %s)', p_reason, job.crash_count, p_crash_limit)
                ELSE p_reason
            END AS reason
        FROM unnest(p_ids, p_leases, p_crashed, p_lost, p_begun) AS given (id, lease, crashed, lost, begun)
        JOIN pgqueue_job_live AS job ON job.id = given.id AND job.lease = given.lease
        -- The row already includes this loss.
        CROSS JOIN LATERAL (SELECT given.crashed OR given.lost AND job.lost_in_a_row > 1 AS counts) AS crash
        CROSS JOIN LATERAL (SELECT crash.counts, CASE
            WHEN given.begun AND job.on_lost = 'fail' THEN 'WorkerLost'
            WHEN crash.counts AND job.crash_count >= p_crash_limit THEN 'TooManyCrashes'
        END AS error_class) AS verdict
        ORDER BY job.id
    ) AS fate;
    jobs := 0;
    notable := '[]';
    IF lost.ids IS NOT NULL THEN
        SELECT * INTO finished
        FROM _pgqueue_finish(
            lost.ids, lost.leases, lost.outcomes, NULL, lost.errors, NULL, lost.delays, NULL, NULL,
            lost.reasons, p_keep_errors);
        jobs := cardinality(finished.accepted);
        SELECT coalesce(jsonb_agg(entry.fate ORDER BY entry.place), '[]') INTO notable
        FROM (
            SELECT given.place, CASE
                WHEN given.id = ANY (finished.cancelled) AND given.fate ->> 'outcome' IS DISTINCT FROM 'cancelled'
                    THEN given.fate
                        || '{"outcome": "cancelled", "reason": "a job with the same unique key waits in its place"}'
                ELSE given.fate END AS fate
            FROM unnest(lost.ids, lost.fates) WITH ORDINALITY AS given (id, fate, place)
        ) AS entry
        WHERE entry.fate ->> 'outcome' IS NOT NULL;
    END IF;
END $$;
