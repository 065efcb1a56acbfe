-- Charge starts to the rates of these keys; a key that occurs several times is charged as often. Keys without a rate
-- are ignored. The caller holds the locks of the keys. The rows are written in the order of the keys, so that two
-- sessions do not deadlock.
CREATE FUNCTION pgqueue_charge_v1(p_keys text[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    charged integer;
BEGIN
    -- Race: the clock goes on between the decision and this, which makes the charge later, never earlier.
    INSERT INTO pgqueue_rate AS rate (key, tat)
    SELECT used.key, clock_timestamp() + interval '1 second'
        * (used.starts * extract(epoch FROM setting.period) / setting.starts)::double precision
    FROM (SELECT given.key, count(*) AS starts FROM unnest(p_keys) AS given (key) GROUP BY given.key) AS used
    JOIN pgqueue_limit AS setting ON setting.name = split_part(used.key, '/', 1) AND setting.starts IS NOT NULL
    ORDER BY used.key
    ON CONFLICT (key) DO UPDATE SET tat = excluded.tat + greatest(rate.tat - clock_timestamp(), interval '0');
    GET DIAGNOSTICS charged = ROW_COUNT;
    RETURN charged;
END $$;
