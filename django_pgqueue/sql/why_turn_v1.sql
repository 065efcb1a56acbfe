-- Why a job that a worker may take, and for which there is a slot, has not started (why.sql): the workers do not know
-- its task, another session has locked its row, or others come first. Otherwise it should start within a moment, unless the
-- transaction that asks has not committed what it wrote: no worker can see that.
--
-- The transaction that has locked a row is in its xmax. If several have, that is the number of a group of them, which no
-- row of pg_locks has, and the lock is not found.
CREATE FUNCTION pgqueue_why_turn_v1(
    p_job pgqueue_job_live, p_now timestamptz, p_queues jsonb[], p_excluded jsonb[], OUT code text, OUT facts jsonb
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    found record;
    ahead jsonb;
BEGIN
    IF pgqueue_why_is_unknown_v1(p_job.waiting_reason) THEN
        code := 'unknown_task';
        facts := jsonb_build_object('reason', p_job.waiting_reason);
        RETURN;
    END IF;
    SELECT held.pid, session.xact_start, nullif(session.application_name, '') AS application,
        locked.xmin AS made_by INTO found
    FROM pgqueue_job_live AS locked
    LEFT JOIN pg_locks AS held ON held.locktype = 'transactionid' AND held.transactionid = locked.xmax
        AND held.granted AND held.pid <> pg_backend_pid()
    LEFT JOIN pg_stat_get_activity(coalesce(held.pid, 0)) AS session ON true
    WHERE locked.id = p_job.id;
    IF found.pid IS NOT NULL THEN
        code := 'locked';
        facts := jsonb_build_object(
            'pid', found.pid, 'application', found.application, 'since', found.xact_start);
        RETURN;
    END IF;
    ahead := pgqueue_why_ahead_v1(p_job, p_now, p_queues, p_excluded);
    IF ahead ? 'first' THEN
        code := 'wait_queue';
    ELSIF (ahead ->> 'ahead')::integer > 0 OR (ahead ->> 'groups')::integer > 0 THEN
        code := 'behind';
    ELSIF EXISTS (
        SELECT FROM pg_locks AS own WHERE own.locktype = 'transactionid' AND own.transactionid = found.made_by
            AND own.pid = pg_backend_pid()) THEN
        code := 'uncommitted';
    ELSE
        code := 'ready';
    END IF;
    facts := ahead;
END $$;
