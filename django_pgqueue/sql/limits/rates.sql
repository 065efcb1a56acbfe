-- Take count starts of a rate, for the application's own use. Returns 0 if they were taken, and otherwise the seconds
-- until they would be allowed; nothing is taken then. If only_look, nothing is taken in any case. The key shares the
-- state of jobs with the limit key <name>/<key>.
--
-- Exact: the state is read under the lock of the key, by a statement that begins after the lock was taken. Claims use
-- the same lock, but only try it. The lock lasts until the end of the transaction, so that a rollback gives the starts
-- back to no session that has already been refused or admitted by them. Under another isolation than READ COMMITTED, a
-- state that has changed since the snapshot is a serialization failure.
CREATE FUNCTION pgqueue_take_rate(
    name text, key text DEFAULT '', count integer DEFAULT 1, only_look boolean DEFAULT false
) RETURNS double precision LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    whole text := name || CASE WHEN key = '' THEN '' ELSE '/' || key END;
    setting pgqueue_limit;
    state timestamptz;
    now timestamptz;
    problem text := coalesce(_pgqueue_limit_problem(name, NULL, NULL), _pgqueue_key_problem(whole));
BEGIN
    IF problem IS NULL THEN
        SELECT * INTO setting FROM pgqueue_limit AS found WHERE found.name = pgqueue_take_rate.name;
        problem := CASE
            WHEN whole IS NULL
                THEN 'the key of a rate must not be NULL: leave it out'
            WHEN setting.rate IS NULL
                THEN format('there is no rate %L: set it with '
                    'pgqueue_set_limit(''limit'', %L, rate => 100, per => ''1 minute'')', name, name)
            WHEN count IS NULL OR count < 1
                THEN format('the number of starts to take from the rate %L must be at least 1, not %s',
                    name, coalesce(count::text, 'NULL'))
            WHEN count > setting.burst
                THEN format('%s starts of the rate %L are never allowed at once, because its burst is %s',
                    count, name, setting.burst)
        END;
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT only_look THEN
        PERFORM pg_advisory_xact_lock(_pgqueue_lock_key('limit', whole));
        PERFORM _pgqueue_settle_rates(ARRAY[whole]);
    END IF;
    SELECT rate.tat INTO state FROM pgqueue_rate AS rate WHERE rate.key = whole;
    now := clock_timestamp();
    IF _pgqueue_starts_left(state, now, setting.rate, setting.per, setting.burst) >= count THEN
        IF NOT only_look THEN
            PERFORM _pgqueue_charge(array_fill(whole, ARRAY[count]));
        END IF;
        RETURN 0;
    END IF;
    RETURN least(
        extract(epoch FROM _pgqueue_next_start(state, now, setting.rate, setting.per, setting.burst, count) - now),
        count * extract(epoch FROM setting.per) / setting.rate)::double precision;
END $$;

-- How many starts a rate allows now; NULL without a rate. This is the generic cell rate algorithm (GCRA, ITU-T I.371)
-- as a leaky bucket: the theoretical arrival time `tat` runs ahead of the clock by period / starts for each start, and
-- may run ahead by burst of these steps. In any window, at most burst + window * starts / period can start.
CREATE FUNCTION _pgqueue_starts_left(
    p_tat timestamptz, p_now timestamptz, p_starts integer, p_period interval, p_burst integer
) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_starts IS NOT NULL THEN greatest(0, floor(
        p_burst - extract(epoch FROM greatest(p_tat, p_now) - p_now) * p_starts / extract(epoch FROM p_period)
    ))::integer END
$$;

-- When a rate allows p_count starts at once: now, or a later time. One microsecond is added, so that rounding never
-- makes this earlier than _pgqueue_starts_left says. NULL without a rate.
CREATE FUNCTION _pgqueue_next_start(
    p_tat timestamptz, p_now timestamptz, p_starts integer, p_period interval, p_burst integer, p_count integer
) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_starts IS NULL THEN NULL
        WHEN _pgqueue_starts_left(p_tat, p_now, p_starts, p_period, p_burst) >= p_count THEN p_now
        ELSE p_tat + interval '1 microsecond' - interval '1 second'
            * ((p_burst - p_count) * extract(epoch FROM p_period) / p_starts)::double precision
    END
$$;

-- Never let the state of these rates be further in the future than a burst that has just been used. It can be, if the
-- clock has stepped back, or if the rate was raised or its burst lowered, and then nothing would start for that long.
-- It is written, because a bound that moves with the clock would never be reached.
CREATE FUNCTION _pgqueue_settle_rates(p_keys text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE pgqueue_rate AS rate SET tat = bound.latest
    FROM (
        SELECT given.key, clock_timestamp() + interval '1 second'
            * (setting.burst * extract(epoch FROM setting.per) / setting.rate)::double precision AS latest
        FROM unnest(p_keys) AS given (key)
        JOIN pgqueue_limit AS setting ON setting.name = split_part(given.key, '/', 1) AND setting.rate IS NOT NULL
    ) AS bound
    WHERE rate.key = bound.key AND rate.tat > bound.latest + interval '1 millisecond';
END $$;

-- Charge starts to the rates of these keys; a key that occurs several times is charged as often. Keys without a rate
-- are ignored. The caller holds the locks of the keys. The rows are written in the order of the keys, so that two
-- sessions do not deadlock.
CREATE FUNCTION _pgqueue_charge(p_keys text[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    -- Race: the clock goes on between the decision and this, which makes the charge later, never earlier. It is read
    -- once: a later time in the update would take off what has passed since, such as the wait for the row.
    moment timestamptz := clock_timestamp();
    charged integer;
BEGIN
    INSERT INTO pgqueue_rate AS rate (key, tat)
    SELECT used.key, moment + interval '1 second'
        * (used.starts * extract(epoch FROM setting.per) / setting.rate)::double precision
    FROM (SELECT given.key, count(*) AS starts FROM unnest(p_keys) AS given (key) GROUP BY given.key) AS used
    JOIN pgqueue_limit AS setting ON setting.name = split_part(used.key, '/', 1) AND setting.rate IS NOT NULL
    ORDER BY used.key
    ON CONFLICT (key) DO UPDATE SET tat = greatest(rate.tat, moment) + (excluded.tat - moment);
    GET DIAGNOSTICS charged = ROW_COUNT;
    RETURN charged;
END $$;
