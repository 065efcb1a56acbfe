-- Set how many jobs of a limit may run at once, or start in a period, whatever the code declares: from now on the code
-- does not change it. What is NULL stays as it is; p_no_concurrency and p_no_rate take a number away. The limit of a queue
-- is named queue:<name>, that of the whole installation *.
CREATE FUNCTION pgqueue_set_limit_v1(
    p_name text, p_concurrency integer, p_on_full text DEFAULT NULL, p_rate integer DEFAULT NULL,
    p_per interval DEFAULT NULL, p_burst integer DEFAULT NULL, p_no_concurrency boolean DEFAULT false,
    p_no_rate boolean DEFAULT false
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text := pgqueue_limit_problem_v1(p_name, p_concurrency, p_on_full, p_rate, p_per, p_burst);
    -- Without days and months. A period that is too long has no such interval.
    period interval := interval '1 second'
        * CASE WHEN problem IS NULL THEN extract(epoch FROM p_per)::double precision END;
    whole_burst integer := CASE WHEN p_rate IS NOT NULL THEN coalesce(p_burst, 1) END;
    sets_rate boolean := p_rate IS NOT NULL OR p_no_rate;
    written pgqueue_limit;
BEGIN
    IF problem IS NULL THEN
        INSERT INTO pgqueue_limit AS setting (name, concurrency, on_full, rate, per, burst, is_overridden)
        VALUES (p_name, p_concurrency, coalesce(p_on_full, 'wait'), p_rate, period, whole_burst, true)
        ON CONFLICT (name) DO UPDATE SET is_overridden = true,
            concurrency = CASE WHEN NOT p_no_concurrency THEN coalesce(p_concurrency, setting.concurrency) END,
            on_full = coalesce(p_on_full, setting.on_full),
            rate = CASE WHEN sets_rate THEN excluded.rate ELSE setting.rate END,
            per = CASE WHEN sets_rate THEN excluded.per ELSE setting.per END,
            burst = CASE WHEN sets_rate THEN excluded.burst ELSE setting.burst END
        RETURNING * INTO written;
        -- What stayed as it was may not fit: a rate, and jobs that do not wait.
        problem := coalesce(
            pgqueue_limit_problem_v1(
                p_name, written.concurrency, written.on_full, written.rate, written.per, written.burst),
            CASE WHEN num_nonnulls(written.concurrency, written.rate) = 0 AND NOT (p_no_concurrency OR p_no_rate)
                THEN format('the limit %L has no number: give concurrency or rate', p_name) END);
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pgqueue_release_limit_v1(p_name);
END $$;
