-- Delete at most p_limit jobs whose retention in the kept leaf is over, and return how many. Each queue and status
-- is one range of the index, so that jobs that are kept for years are not read again each time. It notes which jobs
-- are gone (pgqueue_gone).
CREATE FUNCTION pgqueue_sweep_v1(p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ring pgqueue_ring;
    kind record;
    before timestamptz;
    swept integer := 0;
    gone bigint[];
    orphaned pgqueue_ended_v1[];
BEGIN
    IF NOT pgqueue_on_duty_v1('kept') THEN
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
        PERFORM pgqueue_note_gone_v1(min(job.id), max(job.id)) FROM unnest(gone) AS job (id);
        -- What held until such a job was retried can never run.
        IF kind.status = 'failed' THEN
            orphaned := orphaned || ARRAY(
                SELECT ROW(job.id, 'failed', 2, NULL)::pgqueue_ended_v1 FROM unnest(gone) AS job (id)
                WHERE EXISTS (SELECT FROM pgqueue_edge AS edge WHERE edge.parent_id = job.id));
        END IF;
        EXIT WHEN swept >= p_limit;
    END LOOP;
    IF cardinality(orphaned) > 0 THEN
        PERFORM pgqueue_settle_v1(orphaned);
    END IF;
    RETURN swept;
END $$;
