-- Set how many jobs of a limit may run at once, whatever the code declares: from now on the code does not change it.
-- p_running NULL: go back to what the code declares; a limit that no code declares is deleted. p_on_conflict NULL: as
-- it is. The limit of a queue is named queue:<name>, that of the whole installation *.
CREATE FUNCTION pgqueue_set_limit_v1(p_name text, p_running integer, p_on_conflict text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text := pgqueue_limit_problem_v1(p_name, p_running, p_on_conflict);
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_running IS NULL THEN
        DELETE FROM pgqueue_limit AS setting WHERE setting.name = p_name AND setting.declared IS NULL;
        UPDATE pgqueue_limit AS setting SET running = setting.declared, is_overridden = false
        WHERE setting.name = p_name AND setting.is_overridden;
    ELSE
        INSERT INTO pgqueue_limit AS setting (name, running, on_conflict, is_overridden)
        VALUES (p_name, p_running, coalesce(p_on_conflict, 'wait'), true)
        ON CONFLICT (name) DO UPDATE SET running = excluded.running, is_overridden = true,
            on_conflict = coalesce(p_on_conflict, setting.on_conflict);
    END IF;
    PERFORM pgqueue_release_limit_v1(p_name);
END $$;
