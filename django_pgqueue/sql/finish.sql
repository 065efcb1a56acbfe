-- The stable name for workers in other languages: CALL pgqueue_finish(5, 77, 'done').
--
-- What workers in Python cannot send is refused here, before it is stored: an error that is no object, or a time that no
-- date can hold, would break whoever reads the job later.
CREATE PROCEDURE pgqueue_finish(
    id bigint, lease bigint, outcome text, result jsonb DEFAULT NULL, error jsonb DEFAULT NULL,
    fingerprint text DEFAULT NULL, delay double precision DEFAULT NULL,
    started_ago double precision DEFAULT NULL, duration double precision DEFAULT NULL,
    reason text DEFAULT NULL, keep_errors integer DEFAULT 20
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    most constant double precision := 3155760000;
    problem text := CASE
        WHEN jsonb_typeof(error) <> 'object'
            THEN 'error must be a JSON object'
        WHEN jsonb_typeof(error -> 'class') <> 'string' OR jsonb_typeof(error -> 'message') <> 'string'
            OR jsonb_typeof(error -> 'traceback') <> 'string' OR jsonb_typeof(error -> 'version') <> 'string'
            THEN 'the class, message, traceback and version of error must be strings'
        WHEN NOT (delay BETWEEN 0 AND most AND started_ago BETWEEN 0 AND most AND duration BETWEEN 0 AND most)
            THEN format('delay, started_ago and duration must be from 0 to 100 years, not %s, %s and %s seconds',
                coalesce(delay::text, 'NULL'), coalesce(started_ago::text, 'NULL'), coalesce(duration::text, 'NULL'))
        WHEN length(fingerprint) > 40
            THEN format('fingerprint has %s characters, but a job can store only 40: use a hash of it', length(fingerprint))
        WHEN length(reason) > 500
            THEN format('reason has %s characters, but a job can store only 500: shorten it', length(reason))
        WHEN keep_errors IS NULL OR keep_errors NOT BETWEEN 1 AND 1000
            THEN format('keep_errors %s must be from 1 to 1000', coalesce(keep_errors::text, 'NULL'))
    END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: finish: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CALL pgqueue_finish_one_v1(
        id, lease, outcome, result, error, fingerprint, delay, started_ago, duration, reason, keep_errors);
END $$;
