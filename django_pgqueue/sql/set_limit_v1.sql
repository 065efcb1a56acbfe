-- Set how many jobs of a limit may run at once, or start in a period, whatever the code declares: from now on the code
-- does not change it. What is NULL stays as it is, or, if p_is_whole, is no limit. If neither p_running nor p_starts is
-- given: go back to what the code declares; a limit that no code declares is deleted. The limit of a queue is named
-- queue:<name>, that of the whole installation *.
CREATE FUNCTION pgqueue_set_limit_v1(
    p_name text, p_running integer, p_on_conflict text DEFAULT NULL, p_starts integer DEFAULT NULL,
    p_period interval DEFAULT NULL, p_burst integer DEFAULT NULL, p_is_whole boolean DEFAULT false
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text := pgqueue_limit_problem_v1(p_name, p_running, p_on_conflict, p_starts, p_period, p_burst);
    -- Without days and months. A period that is too long has no such interval.
    period interval := interval '1 second'
        * CASE WHEN problem IS NULL THEN extract(epoch FROM p_period)::double precision END;
    burst integer := CASE WHEN p_starts IS NOT NULL THEN coalesce(p_burst, 1) END;
    written pgqueue_limit;
BEGIN
    IF problem IS NULL AND num_nonnulls(p_running, p_starts) = 0 THEN
        DELETE FROM pgqueue_limit AS setting
        WHERE setting.name = p_name AND num_nonnulls(setting.declared, setting.declared_starts) = 0;
        UPDATE pgqueue_limit AS setting SET running = setting.declared, starts = setting.declared_starts,
            period = setting.declared_period, burst = setting.declared_burst, is_overridden = false
        WHERE setting.name = p_name AND setting.is_overridden;
    ELSIF problem IS NULL THEN
        INSERT INTO pgqueue_limit AS setting (name, running, on_conflict, starts, period, burst, is_overridden)
        VALUES (p_name, p_running, coalesce(p_on_conflict, 'wait'), p_starts, period, burst, true)
        ON CONFLICT (name) DO UPDATE SET is_overridden = true,
            running = CASE WHEN p_is_whole THEN p_running ELSE coalesce(p_running, setting.running) END,
            on_conflict = coalesce(p_on_conflict, setting.on_conflict),
            starts = CASE WHEN p_is_whole OR p_starts IS NOT NULL THEN excluded.starts ELSE setting.starts END,
            period = CASE WHEN p_is_whole OR p_starts IS NOT NULL THEN excluded.period ELSE setting.period END,
            burst = CASE WHEN p_is_whole OR p_starts IS NOT NULL THEN excluded.burst ELSE setting.burst END
        RETURNING * INTO written;
        -- What stayed as it was may not fit: a rate, and jobs that do not wait.
        problem := pgqueue_limit_problem_v1(
            p_name, written.running, written.on_conflict, written.starts, written.period, written.burst);
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pgqueue_release_limit_v1(p_name);
END $$;
