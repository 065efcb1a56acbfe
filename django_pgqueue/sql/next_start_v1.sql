-- When a rate allows p_count starts at once: now, or a later time. One microsecond is added, so that rounding never
-- makes this earlier than pgqueue_starts_left_v1 says. NULL without a rate.
CREATE FUNCTION pgqueue_next_start_v1(
    p_tat timestamptz, p_now timestamptz, p_starts integer, p_period interval, p_burst integer, p_count integer
) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_starts IS NULL THEN NULL
        WHEN pgqueue_starts_left_v1(p_tat, p_now, p_starts, p_period, p_burst) >= p_count THEN p_now
        ELSE p_tat + interval '1 microsecond' - interval '1 second'
            * ((p_burst - p_count) * extract(epoch FROM p_period) / p_starts)::double precision
    END
$$;
