-- Never let the state of these rates be further in the future than a burst that has just been used. It can be, if the
-- clock has stepped back, or if the rate was raised or its burst lowered, and then nothing would start for that long.
-- It is written, because a bound that moves with the clock would never be reached.
CREATE FUNCTION pgqueue_settle_rates_v1(p_keys text[]) RETURNS void
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
