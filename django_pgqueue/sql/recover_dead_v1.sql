-- One round of recovery. The first supervisor that calls it does the work, and the others skip the round. Requeue at
-- most p_limit jobs of dead workers, and delete the rows of workers that hold no more jobs. Return the number of dead
-- workers, the number of requeued jobs, and the jobs that are logged (pgqueue_give_back_v1). The next round continues
-- with the rest.
CREATE FUNCTION pgqueue_recover_dead_v1(
    p_heartbeat double precision, p_lease double precision, p_crash_limit integer, p_limit integer,
    p_keep_errors integer, OUT dead integer, OUT jobs integer, OUT notable jsonb
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    workers bigint[];
BEGIN
    dead := 0;
    jobs := 0;
    notable := '[]';
    IF NOT pgqueue_on_duty_v1('recover') THEN
        RETURN;
    END IF;
    workers := ARRAY(SELECT pgqueue_dead_workers_v1(p_heartbeat, p_lease));
    dead := cardinality(workers);
    IF dead = 0 THEN
        RETURN;
    END IF;
    SELECT recovered.jobs, recovered.notable INTO jobs, notable
    FROM pgqueue_recover_v1(
        workers, NULL, NULL, false, 'its worker was lost', p_crash_limit, p_limit, p_keep_errors) AS recovered;
    PERFORM pgqueue_forget_workers_v1(workers);
    -- Race: rows that such a session had locked were skipped above. The next round finds them.
    PERFORM pgqueue_end_sessions_v1(workers);
END $$;
