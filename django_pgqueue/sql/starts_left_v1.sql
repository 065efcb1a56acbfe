-- How many starts a rate allows now; NULL without a rate. This is the generic cell rate algorithm (GCRA, ITU-T I.371)
-- as a leaky bucket: the theoretical arrival time `tat` runs ahead of the clock by period / starts for each start, and
-- may run ahead by burst of these steps. In any window, at most burst + window * starts / period can start.
CREATE FUNCTION pgqueue_starts_left_v1(
    p_tat timestamptz, p_now timestamptz, p_starts integer, p_period interval, p_burst integer
) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_starts IS NOT NULL THEN greatest(0, floor(
        p_burst - extract(epoch FROM greatest(p_tat, p_now) - p_now) * p_starts / extract(epoch FROM p_period)
    ))::integer END
$$;
