-- Requeue jobs whose process is gone one by one (pgqueue_give_back_v1), and skip those that a session holds up. Each is in a
-- subtransaction of its own, so that a skipped job does not count a crash twice. Each skipped job takes 50 ms, and the
-- supervisor has to send heartbeats, so this stops after ten of them. The order is random, so that the same ten do not
-- keep the others waiting in the next round.
CREATE FUNCTION pgqueue_give_back_each_v1(
    p_ids bigint[], p_leases bigint[], p_crashed boolean[], p_lost boolean[], p_begun boolean[], p_reason text,
    p_crash_limit integer, p_keep_errors integer, OUT jobs integer, OUT notable jsonb
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    item record;
    one record;
    skipped integer := 0;
BEGIN
    jobs := 0;
    notable := '[]';
    FOR item IN
        SELECT * FROM unnest(p_ids, p_leases, p_crashed, p_lost, p_begun) AS given (id, lease, crashed, lost, begun)
        ORDER BY random()
    LOOP
        EXIT WHEN skipped = 10;
        BEGIN
            SELECT given.jobs, given.notable INTO one
            FROM pgqueue_give_back_v1(
                ARRAY[item.id], ARRAY[item.lease], ARRAY[item.crashed], ARRAY[item.lost], ARRAY[item.begun],
                p_reason, NULL, p_crash_limit, p_keep_errors) AS given;
            jobs := jobs + one.jobs;
            notable := notable || one.notable;
        EXCEPTION WHEN lock_not_available THEN
            skipped := skipped + 1;
        END;
    END LOOP;
END $$;
