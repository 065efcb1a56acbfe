-- Report the outcome of a claimed job, from a worker in another language: CALL pgqueue_finish(5, 77, 'done').
--
-- What workers in Python cannot send is refused here, before it is stored: an error that is no object, or a time that
-- no date can hold, would break whoever reads the job later.
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
            THEN format('fingerprint has %s characters, but a job can store only 40: use a hash of it',
                length(fingerprint))
        WHEN length(reason) > 500
            THEN format('reason has %s characters, but a job can store only 500: shorten it', length(reason))
        WHEN keep_errors IS NULL OR keep_errors NOT BETWEEN 1 AND 1000
            THEN format('keep_errors %s must be from 1 to 1000', coalesce(keep_errors::text, 'NULL'))
    END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'pgqueue: finish: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CALL _pgqueue_finish_one(
        id, lease, outcome, result, error, fingerprint, delay, started_ago, duration, reason, keep_errors);
END $$;

-- Report one outcome, and raise an error if it is refused. This is for atomic tasks, whose transaction must fail
-- if the lease is lost, and for workers in other languages. The codes are in class 23 (integrity), because
-- class 55 would look like an outage.
CREATE PROCEDURE _pgqueue_finish_one(
    p_id bigint, p_lease bigint, p_outcome text, p_result jsonb DEFAULT NULL, p_error jsonb DEFAULT NULL,
    p_fingerprint text DEFAULT NULL, p_delay double precision DEFAULT NULL,
    p_started_ago double precision DEFAULT NULL, p_duration double precision DEFAULT NULL,
    p_reason text DEFAULT NULL, p_keep_errors integer DEFAULT 20, p_log jsonb DEFAULT NULL
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    job record;
BEGIN
    IF p_outcome IS NULL OR p_outcome NOT IN (
        'done', 'failed', 'cancelled', 'retry', 'snooze', 'release', 'unknown') THEN
        RAISE EXCEPTION 'pgqueue: outcome % is not one of done, failed, cancelled, retry, snooze, release, unknown',
            quote_nullable(p_outcome) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT live.status, live.lease INTO job FROM pgqueue_job_live AS live WHERE live.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: there is no live job %', p_id USING ERRCODE = '23Q01',
            HINT = 'It is finished, or its lease was lost and another worker finished it.';
    ELSIF job.status <> 'running' THEN
        RAISE EXCEPTION 'pgqueue: job % is %, not running', p_id, job.status USING ERRCODE = '23Q03',
            HINT = 'Its lease was lost and it was requeued.';
    ELSIF job.lease IS DISTINCT FROM p_lease THEN
        RAISE EXCEPTION 'pgqueue: job % is leased to another claim', p_id USING ERRCODE = '23Q02',
            HINT = 'The lease was lost: nothing of this attempt may be committed.';
    END IF;
    PERFORM _pgqueue_finish(
        ARRAY[p_id], ARRAY[p_lease], ARRAY[p_outcome], ARRAY[p_result], ARRAY[p_error], ARRAY[p_fingerprint],
        ARRAY[p_delay], ARRAY[p_started_ago], ARRAY[p_duration], ARRAY[p_reason], p_keep_errors,
        CASE WHEN p_log IS NOT NULL THEN ARRAY[p_log] END);
END $$;
