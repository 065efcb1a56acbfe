-- Return the shelf for a finished job: the ring, the kept leaf, or none (NULL: the job is not kept).
CREATE FUNCTION _pgqueue_shelf(
    p_status text, p_retention interval, p_failed_retention interval, p_ring pgqueue_ring
) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_status = 'failed' THEN
            CASE WHEN coalesce(p_failed_retention, p_ring.failed_retention) > interval '0' THEN 9::smallint END
        WHEN p_retention IS NULL THEN
            CASE WHEN p_ring.retention > interval '0' THEN p_ring.current END
        WHEN p_retention > interval '0' THEN 9::smallint
    END
$$;

-- Do one step of maintenance for the ring of history, and return what was done, in words. It may only empty the shelf
-- after the current one, and only if no job in it is younger than the retention. When that shelf is empty and the
-- current one is a sixth of the retention old, the ring moves to the next shelf. If the clock was set back,
-- `since` is in the future and is set again. Which jobs are gone is noted when a shelf is emptied.
--
-- Race: a finish may commit a young job into the shelf between the check and the TRUNCATE, so the order is lock,
-- check, truncate, and the isolation level must be READ COMMITTED: under REPEATABLE READ the check would use a
-- snapshot from before the lock. If a reader holds the shelf, this gives up after 50 ms, so no session waits behind it
-- for longer. SECURITY DEFINER: the worker's role does not need the TRUNCATE privilege.
CREATE FUNCTION _pgqueue_rotate() RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    ring pgqueue_ring;
    next_shelf integer;
    young boolean;  -- whether the next shelf has a young job; NULL: it is empty
    first_id bigint;
    last_id bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pgqueue: the ring of history can be turned only under READ COMMITTED, not %',
            current_setting('transaction_isolation') USING ERRCODE = 'invalid_transaction_state';
    END IF;
    IF NOT _pgqueue_on_duty('ring') THEN
        RETURN 'busy';
    END IF;
    SELECT * INTO STRICT ring FROM pgqueue_ring;
    next_shelf := ring.current % 8 + 1;
    IF ring.since > clock_timestamp() THEN
        UPDATE pgqueue_ring SET since = clock_timestamp();
        RETURN 'restarted: the clock was set back';
    END IF;
    -- A cheap check before the lock, so that a shelf with young jobs is never locked. max() always reads the
    -- end of the index; an EXISTS read the whole shelf if there were no statistics.
    EXECUTE format('SELECT max(finished_at) > $1 FROM pgqueue_job_past_%s', next_shelf)
        INTO young USING clock_timestamp() - ring.retention;
    IF young THEN
        RETURN 'waiting for shelf ' || next_shelf;
    ELSIF NOT young THEN
        EXECUTE format('LOCK TABLE pgqueue_job_past_%s IN ACCESS EXCLUSIVE MODE', next_shelf);
        EXECUTE format('SELECT max(finished_at) > $1 FROM pgqueue_job_past_%s', next_shelf)
            INTO young USING clock_timestamp() - ring.retention;
        IF young THEN
            RETURN 'waiting for shelf ' || next_shelf;
        END IF;
        EXECUTE format('SELECT min(id), max(id) FROM pgqueue_job_past_%s', next_shelf) INTO first_id, last_id;
        EXECUTE format('TRUNCATE pgqueue_job_past_%s', next_shelf);
        PERFORM _pgqueue_note_gone(first_id, last_id);
        RETURN 'emptied shelf ' || next_shelf;
    END IF;
    IF ring.since + ring.retention / 6 <= clock_timestamp() THEN
        UPDATE pgqueue_ring SET current = next_shelf, since = clock_timestamp();
        RETURN 'moved to shelf ' || next_shelf;
    END IF;
    RETURN 'nothing to do';
EXCEPTION WHEN lock_not_available THEN
    RETURN 'gave way to a reader of shelf ' || next_shelf;
END $$;

-- Note that maintenance lets go jobs from p_first to p_last; NULL: none.
CREATE FUNCTION _pgqueue_note_gone(p_first bigint, p_last bigint) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO pgqueue_gone AS gone (first_id, last_id)
    SELECT p_first, p_last WHERE p_first IS NOT NULL
    ON CONFLICT (one) DO UPDATE SET
        first_id = least(gone.first_id, excluded.first_id), last_id = greatest(gone.last_id, excluded.last_id)
    WHERE gone.first_id > excluded.first_id OR gone.last_id < excluded.last_id
$$;

-- Delete at most p_limit jobs whose retention in the kept leaf has ended, and return how many. Each queue and status
-- is one range of the index, so that jobs that are kept for years are not read again each time. It notes which jobs
-- are gone (pgqueue_gone).
CREATE FUNCTION _pgqueue_sweep(p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ring pgqueue_ring;
    kind record;
    before timestamptz;
    swept integer := 0;
    gone bigint[];
    orphaned pgqueue_ended[];
BEGIN
    IF NOT _pgqueue_on_duty('kept') THEN
        RETURN 0;
    END IF;
    SELECT * INTO STRICT ring FROM pgqueue_ring;
    FOR kind IN
        WITH RECURSIVE kinds AS (
            (SELECT job.queue_name, job.status FROM pgqueue_job_kept AS job
            ORDER BY job.queue_name, job.status LIMIT 1)
            UNION ALL
            SELECT following.queue_name, following.status FROM kinds, LATERAL (
                SELECT job.queue_name, job.status FROM pgqueue_job_kept AS job
                WHERE (job.queue_name, job.status) > (kinds.queue_name, kinds.status)
                ORDER BY job.queue_name, job.status LIMIT 1
            ) AS following
        )
        SELECT kinds.queue_name, kinds.status, CASE kinds.status
            WHEN 'failed' THEN coalesce(queue.failed_retention, ring.failed_retention)
            ELSE coalesce(queue.retention, ring.retention) END AS keep
        FROM kinds LEFT JOIN pgqueue_queue AS queue ON queue.name = kinds.queue_name
    LOOP
        before := clock_timestamp() - kind.keep;  -- a variable: a volatile function cannot bound an index scan
        gone := ARRAY(
            SELECT old.id FROM pgqueue_job_kept AS old
            WHERE old.queue_name = kind.queue_name AND old.status = kind.status
                AND old.finished_at < before
            ORDER BY old.finished_at LIMIT p_limit - swept FOR UPDATE SKIP LOCKED);
        DELETE FROM pgqueue_job_kept AS job WHERE job.id = ANY (gone);
        swept := swept + cardinality(gone);
        PERFORM _pgqueue_note_gone(min(job.id), max(job.id)) FROM unnest(gone) AS job (id);
        -- What held until such a job was retried can never run.
        IF kind.status = 'failed' THEN
            orphaned := orphaned || ARRAY(
                SELECT ROW(job.id, 'failed', 2, NULL)::pgqueue_ended FROM unnest(gone) AS job (id)
                WHERE EXISTS (SELECT FROM pgqueue_edge AS edge WHERE edge.parent_id = job.id));
        END IF;
        EXIT WHEN swept >= p_limit;
    END LOOP;
    IF cardinality(orphaned) > 0 THEN
        PERFORM _pgqueue_settle(orphaned);
    END IF;
    RETURN swept;
END $$;

-- Store settings of a worker that starts. Returns the previous retentions, or no row if nothing has changed.
CREATE FUNCTION _pgqueue_retain(
    p_retention interval, p_failed_retention interval, p_max_json_bytes integer,
    OUT retention interval, OUT failed_retention interval
) RETURNS SETOF record LANGUAGE sql SET search_path FROM CURRENT AS $$
    WITH before AS (SELECT ring.* FROM pgqueue_ring AS ring FOR UPDATE)
    UPDATE pgqueue_ring
    SET retention = p_retention, failed_retention = p_failed_retention, max_json_bytes = p_max_json_bytes
    FROM before
    WHERE (before.retention, before.failed_retention, before.max_json_bytes)
        IS DISTINCT FROM (p_retention, p_failed_retention, p_max_json_bytes)
    RETURNING before.retention, before.failed_retention
$$;
