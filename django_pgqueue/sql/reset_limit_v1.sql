-- Let a limit be again what the code declares; one that no code declares is deleted. Return whether it was different.
CREATE FUNCTION pgqueue_reset_limit_v1(p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text := pgqueue_limit_problem_v1(p_name, NULL, NULL);
    is_changed boolean;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    DELETE FROM pgqueue_limit AS setting
    WHERE setting.name = p_name AND num_nonnulls(setting.declared_concurrency, setting.declared_rate) = 0;
    is_changed := FOUND;
    UPDATE pgqueue_limit AS setting SET concurrency = setting.declared_concurrency, rate = setting.declared_rate,
        per = setting.declared_per, burst = setting.declared_burst, is_overridden = false
    WHERE setting.name = p_name AND setting.is_overridden;
    is_changed := is_changed OR FOUND;
    IF is_changed THEN
        PERFORM pgqueue_release_limit_v1(p_name);
    END IF;
    RETURN is_changed;
END $$;
