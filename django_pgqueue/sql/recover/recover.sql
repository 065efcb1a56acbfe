-- One round of recovery. The first supervisor that calls it does the work, and the others skip the round. Requeue at
-- most p_limit jobs of dead workers, and delete the rows of workers that hold no more jobs. Return the number of dead
-- workers, the number of requeued jobs, and the jobs that are logged (_pgqueue_give_back). The next round continues
-- with the rest.
--
-- A worker is dead if it was silent for too long (_pgqueue_allowed_silence) and its session lock is free. If the lock
-- proves nothing (its host vanished, it is behind a pooler, it lost its lock), the worker is dead if its last heartbeat
-- is older than the lease.
--
-- All locks are free, although all workers are alive, after a start of the server, after a restart because one of its
-- processes crashed (which resets its statistics), and after the promotion of a standby (which replayed until then).
-- No worker can send a heartbeat for a while then, so if a worker has not sent a heartbeat since such an event, a free
-- lock proves nothing, and its lease is counted from the moment when this session connected, or from that event if the
-- role may not see the session, because it was assumed.
--
-- Race: a worker may return while it is found dead. It registers before it claims again, and for that it waits for
-- the lock of its row, so it does not lose jobs that it claimed afterwards.
CREATE FUNCTION _pgqueue_recover_dead(
    p_heartbeat double precision, p_lease double precision, p_crash_limit integer, p_limit integer,
    p_keep_errors integer, OUT dead integer, OUT jobs integer, OUT notable jsonb
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    silent record;
    lock_key bigint;
    workers bigint[] := '{}';
    since timestamptz := clock_timestamp() - p_lease * interval '1 second';
    upset timestamptz := greatest(
        pg_postmaster_start_time(), pg_last_xact_replay_timestamp(),
        (SELECT stats.stats_reset FROM pg_stat_bgwriter AS stats));
    watching timestamptz := coalesce(
        (SELECT session.backend_start FROM pg_stat_get_activity(pg_backend_pid()) AS session), upset);
BEGIN
    dead := 0;
    jobs := 0;
    notable := '[]';
    IF NOT _pgqueue_on_duty('recover') THEN
        RETURN;
    END IF;
    FOR silent IN
        SELECT worker.id, worker.holds_lock, worker.heartbeat_at > upset AS is_undisturbed,
            worker.heartbeat_at < since AS is_overdue
        FROM pgqueue_worker AS worker
        WHERE worker.heartbeat_at < clock_timestamp()
            - interval '1 second' * _pgqueue_allowed_silence(worker.started_jobs, p_heartbeat, p_lease)
        ORDER BY worker.id FOR UPDATE SKIP LOCKED
    LOOP
        lock_key := _pgqueue_lock_key('worker', silent.id::text);
        IF silent.is_overdue AND (silent.is_undisturbed OR watching < since) THEN
            workers := workers || silent.id;
        ELSIF silent.is_undisturbed AND silent.holds_lock AND pg_try_advisory_lock(lock_key) THEN
            PERFORM pg_advisory_unlock(lock_key);
            workers := workers || silent.id;
        END IF;
    END LOOP;
    dead := cardinality(workers);
    IF dead > 0 THEN
        SELECT recovered.jobs, recovered.notable INTO jobs, notable
        FROM _pgqueue_recover(
            workers, NULL, NULL, false, 'its worker was lost', p_crash_limit, p_limit, p_keep_errors) AS recovered;
        PERFORM _pgqueue_forget_workers(workers);
        -- Race: rows that such a session had locked were skipped above. The next round finds them.
        PERFORM _pgqueue_end_sessions(workers);
    END IF;
END $$;

-- Requeue the jobs of one worker, at most p_limit, after its supervisor has seen its process end, and delete the
-- worker's row. Return how many jobs were requeued, or NULL if there are more: call this again soon. notable has the
-- jobs that are logged (_pgqueue_give_back), in both cases. _pgqueue_recover explains p_begun, p_to_blame and
-- p_alone.
--
-- Race: the server may still be executing the last claim of that process. Its jobs would be left with a worker that
-- is not registered. The session holds the worker's lock until then, so this waits for the lock.
CREATE FUNCTION _pgqueue_recover_worker(
    p_worker bigint, p_begun bigint[], p_to_blame bigint[], p_alone boolean, p_reason text,
    p_crash_limit integer, p_limit integer, p_keep_errors integer, OUT jobs integer, OUT notable jsonb
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    notable := '[]';
    IF NOT pg_try_advisory_xact_lock(_pgqueue_lock_key('worker', p_worker::text)) THEN
        RETURN;
    END IF;
    SELECT recovered.jobs, recovered.notable INTO jobs, notable
    FROM _pgqueue_recover(
        ARRAY[p_worker], p_begun, p_to_blame, p_alone, p_reason, p_crash_limit, p_limit, p_keep_errors) AS recovered;
    PERFORM _pgqueue_forget_workers(ARRAY[p_worker]);
    IF EXISTS (SELECT FROM pgqueue_worker AS worker WHERE worker.id = p_worker) THEN
        jobs := NULL;
    END IF;
END $$;

-- Requeue at most p_limit jobs of dead workers. Return how many, and the ones that are logged (_pgqueue_give_back).
-- A job that was only claimed in advance counts no crash. A job that had started counts a crash if its process ended
-- alone while its supervisor was alive. If more than its process ended (its supervisor, its host, several processes at
-- once), the job is probably not the cause. It then counts a crash only if its last run was lost as well, so a job
-- that takes down everything around it also reaches the limit, one run later.
--
-- If a worker turns out to be alive, its reports are refused, because a finish needs the lease of the job.
-- Race: two supervisors may recover at once. Each of them skips the rows that the other one has locked.
-- Race: a twin of a job with a unique key is in a transaction that is still open (_pgqueue_finish_keyed). Then the jobs
-- are requeued one by one, and jobs that would have to wait stay for a later round. Each is in a subtransaction of its
-- own, so that a skipped job does not count a crash twice. Each skipped job takes 50 ms, and the supervisor has to send
-- heartbeats, so this stops after ten of them. The order is random, so that the same ten do not keep the others waiting
-- in the next round.
CREATE FUNCTION _pgqueue_recover(
    p_workers bigint[],   -- NULL: workers that are not registered, whose jobs no other recovery would find. Such jobs
                          -- come from claims that a transaction pooler commits after their worker's row was deleted.
    p_begun bigint[],     -- the jobs that had started, if the supervisor saw the process end. NULL: it did not. Then
                          -- these are the jobs that it noted with the last heartbeat, and any may have started.
    p_to_blame bigint[],  -- the ones that may count a crash; NULL: all of them
    p_alone boolean,      -- whether only this process ended
    p_reason text, p_crash_limit integer, p_limit integer, p_keep_errors integer,
    OUT jobs integer, OUT notable jsonb
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    lost record;
    one record;
    nth integer;
    skipped integer := 0;
    workers bigint[] := coalesce(p_workers, ARRAY(
        SELECT DISTINCT job.worker FROM pgqueue_job_live AS job
        WHERE job.status = 'running'
            AND NOT EXISTS (SELECT FROM pgqueue_worker AS worker WHERE worker.id = job.worker)));
    seen bigint[] := coalesce(p_begun, ARRAY(
        SELECT unnest(worker.started_jobs) FROM pgqueue_worker AS worker WHERE worker.id = ANY (workers)));
BEGIN
    SELECT array_agg(job.id) AS ids, array_agg(job.lease) AS leases,
        array_agg(p_alone AND job.suspect) AS crashed,
        array_agg(NOT p_alone AND job.suspect) AS lost,
        array_agg(p_begun IS NULL OR job.id = ANY (seen)) AS begun
    INTO lost
    FROM (
        SELECT live.id, live.lease,
            live.id = ANY (seen) AND (p_to_blame IS NULL OR live.id = ANY (p_to_blame)) AS suspect
        FROM pgqueue_job_live AS live
        WHERE live.status = 'running' AND live.worker = ANY (workers)
        ORDER BY live.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) AS job;
    jobs := 0;
    notable := '[]';
    IF lost.ids IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        SELECT given.jobs, given.notable INTO jobs, notable
        FROM _pgqueue_give_back(
            lost.ids, lost.leases, lost.crashed, lost.lost, lost.begun, p_reason, NULL, p_crash_limit, p_keep_errors
        ) AS given;
        RETURN;
    EXCEPTION WHEN lock_not_available THEN
        NULL;
    END;
    FOR nth IN SELECT place FROM generate_subscripts(lost.ids, 1) AS place ORDER BY random() LOOP
        EXIT WHEN skipped = 10;
        BEGIN
            SELECT given.jobs, given.notable INTO one
            FROM _pgqueue_give_back(
                lost.ids[nth:nth], lost.leases[nth:nth], lost.crashed[nth:nth], lost.lost[nth:nth],
                lost.begun[nth:nth], p_reason, NULL, p_crash_limit, p_keep_errors) AS given;
            jobs := jobs + one.jobs;
            notable := notable || one.notable;
        EXCEPTION WHEN lock_not_available THEN
            skipped := skipped + 1;
        END;
    END LOOP;
END $$;

-- How many seconds a worker may be silent before it may be dead: two heartbeats, and three if no job has started in it,
-- since its supervisor then leaves out every second heartbeat. The half covers a heartbeat that comes a little late.
CREATE FUNCTION _pgqueue_allowed_silence(
    p_started_jobs bigint[], p_heartbeat double precision, p_lease double precision
) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT least(p_lease, p_heartbeat * CASE WHEN p_started_jobs = '{}' THEN 3.5 ELSE 2.5 END)
$$;

-- Terminate the sessions that still hold the locks of dead workers, if our role may do that. A process that is
-- suspended, or whose host is gone, may have been in the middle of a transaction. Its locks would last as long as
-- its socket, and block the jobs that it was claiming or reporting. A worker that comes back reconnects and finds
-- that it has lost its leases.
CREATE FUNCTION _pgqueue_end_sessions(p_workers bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    session record;
BEGIN
    FOR session IN
        SELECT held.pid FROM pg_locks AS held
        JOIN unnest(p_workers) AS worker (id)
            ON (held.classid::bigint << 32 | held.objid::bigint) = _pgqueue_lock_key('worker', worker.id::text)
        WHERE held.locktype = 'advisory' AND held.objsubid = 1 AND held.granted
            AND held.database = (SELECT base.oid FROM pg_database AS base WHERE base.datname = current_database())
            AND held.pid <> pg_backend_pid()
    LOOP
        BEGIN
            PERFORM pg_terminate_backend(session.pid);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE WARNING 'pgqueue: the session % of a dead worker cannot be ended by %', session.pid, current_user
                USING HINT = 'Use the same role for all workers, or grant pg_signal_backend to this role.';
        END;
    END LOOP;
END $$;

-- Remove workers from the table, except workers that still hold a job, which must be found dead later.
CREATE FUNCTION _pgqueue_forget_workers(p_workers bigint[]) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    DELETE FROM pgqueue_worker AS worker WHERE worker.id = ANY (p_workers) AND NOT EXISTS (
        SELECT FROM pgqueue_job_live AS job WHERE job.status = 'running' AND job.worker = worker.id)
$$;
