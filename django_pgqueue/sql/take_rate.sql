-- Take count starts of a rate, for the application's own use. Returns 0 if they were taken, and otherwise the seconds
-- until they would be allowed; nothing is taken then. If only_look, nothing is taken in any case. The key shares the
-- state of jobs with the limit key <name>/<key>.
--
-- Exact: the state is read under the lock of the key, by a statement that begins after the lock was taken. Claims use
-- the same lock, but only try it. The lock lasts until the end of the transaction, so that a rollback gives the starts
-- back to nobody who has already been refused or admitted by them. Under another isolation than READ COMMITTED, a
-- state that has changed since the snapshot is a serialization failure.
CREATE FUNCTION pgqueue_take_rate(name text, key text DEFAULT '', count integer DEFAULT 1, only_look boolean DEFAULT false) RETURNS double precision LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    whole text := pgqueue_take_rate.name || CASE WHEN pgqueue_take_rate.key = '' THEN '' ELSE '/' || pgqueue_take_rate.key END;
    setting pgqueue_limit;
    state timestamptz;
    now timestamptz;
    problem text;
BEGIN
    problem := coalesce(pgqueue_limit_problem_v1(pgqueue_take_rate.name, NULL, NULL), pgqueue_key_problem_v1(whole));
    IF problem IS NULL THEN
        SELECT * INTO setting FROM pgqueue_limit AS found WHERE found.name = pgqueue_take_rate.name;
        problem := CASE
            WHEN whole IS NULL
                THEN 'the key of a rate must not be NULL: leave it out'
            WHEN setting.rate IS NULL
                THEN format('there is no rate %L: set it with pgqueue_set_limit(''limit'', %L, rate => 100, per => ''1 minute'')',
                    pgqueue_take_rate.name, pgqueue_take_rate.name)
            WHEN pgqueue_take_rate.count IS NULL OR pgqueue_take_rate.count < 1
                THEN format('the number of starts to take from the rate %L must be at least 1, not %s', pgqueue_take_rate.name,
                    coalesce(pgqueue_take_rate.count::text, 'NULL'))
            WHEN pgqueue_take_rate.count > setting.burst
                THEN format('%s starts of the rate %L are never allowed at once, because its burst is %s', pgqueue_take_rate.count,
                    pgqueue_take_rate.name, setting.burst)
        END;
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT only_look THEN
        PERFORM pg_advisory_xact_lock(pgqueue_lock_key_v1('limit', whole));
        PERFORM pgqueue_settle_rates_v1(ARRAY[whole]);
    END IF;
    SELECT rate.tat INTO state FROM pgqueue_rate AS rate WHERE rate.key = whole;
    now := clock_timestamp();
    IF pgqueue_starts_left_v1(state, now, setting.rate, setting.per, setting.burst) >= pgqueue_take_rate.count THEN
        IF NOT only_look THEN
            PERFORM pgqueue_charge_v1(array_fill(whole, ARRAY[pgqueue_take_rate.count]));
        END IF;
        RETURN 0;
    END IF;
    RETURN least(
        extract(epoch FROM pgqueue_next_start_v1(
            state, now, setting.rate, setting.per, setting.burst, pgqueue_take_rate.count) - now),
        pgqueue_take_rate.count * extract(epoch FROM setting.per) / setting.rate)::double precision;
END $$;
