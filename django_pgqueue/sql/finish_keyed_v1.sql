-- Finish a batch in which jobs with a unique key go back to waiting (scope 'waiting'; the others cannot meet a twin).
-- While they ran, others with the same key may have been enqueued. A job that meets such a twin ends as cancelled, with
-- a reason that names the twin, and keeps its error. Of several jobs of the batch with the same key, the first waits.
--
-- Race: a twin is committed between the look and the UPDATE. That raises unique_violation, which would refuse the whole
-- batch. So it runs in a subtransaction, and this looks again. Race: a twin is in a transaction that is still open. The
-- UPDATE would wait for its end, and with it the whole batch, so this gives up after 50 ms (lock_not_available). Workers
-- then report the jobs one by one, and keep the one that has to wait. A deadlock with an enqueue of several keys
-- would need a second.
CREATE FUNCTION pgqueue_finish_keyed_v1(
    p_keyed bigint[], p_ids bigint[], p_leases bigint[], p_outcomes text[], p_results jsonb[], p_errors jsonb[],
    p_fingerprints text[], p_delays double precision[], p_started_ago double precision[],
    p_durations double precision[], p_reasons text[], p_keep_errors integer, p_logs jsonb[],
    OUT accepted bigint[], OUT cancelled bigint[]
) LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    met record;
BEGIN
    FOR attempt IN 1..10 LOOP
        SELECT coalesce(array_agg(given.id) FILTER (WHERE back.twin IS NOT NULL), '{}') AS ids,
            array_agg(CASE WHEN back.twin IS NULL THEN given.reason ELSE
                format('job %s with the same unique key waits in its place', back.twin) END ORDER BY given.place
            ) AS reasons
        INTO met
        FROM unnest(p_ids, p_reasons) WITH ORDINALITY AS given (id, reason, place)
        LEFT JOIN (
            SELECT keyed.id, coalesce(
                pgqueue_twin_v1(keyed.unique_key, 'waiting'),
                nullif(min(keyed.id) OVER (PARTITION BY keyed.unique_key), keyed.id)) AS twin
            FROM unnest(p_ids, p_leases, p_outcomes) AS item (id, lease, outcome)
            JOIN pgqueue_job_live AS keyed ON keyed.id = item.id AND keyed.lease = item.lease
            WHERE keyed.id = ANY (p_keyed) AND keyed.cancel_requested_at IS NULL
                AND item.outcome IN ('retry', 'snooze', 'release', 'unknown', 'paused', 'wait')
        ) AS back ON back.id = given.id;
        BEGIN
            SELECT finished.accepted, finished.cancelled INTO accepted, cancelled
            FROM pgqueue_finish_v1(
                p_ids, p_leases, p_outcomes, p_results, p_errors, p_fingerprints, p_delays, p_started_ago,
                p_durations, met.reasons, p_keep_errors, p_logs, met.ids) AS finished;
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END LOOP;
    RAISE EXCEPTION 'pgqueue: the unique keys of jobs that go back change hands too fast'
        USING ERRCODE = 'lock_not_available', HINT = 'Report these jobs again.';
END $$;
