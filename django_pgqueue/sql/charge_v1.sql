-- Charge starts to the rates of these keys; a key that occurs several times is charged as often. Keys without a rate
-- are ignored. The caller holds the locks of the keys. The rows are written in the order of the keys, so that two
-- sessions do not deadlock.
CREATE FUNCTION pgqueue_charge_v1(p_keys text[]) RETURNS integer
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
