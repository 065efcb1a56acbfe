-- Report that one job crashed the process in which it ran alone. Its worker is alive and calls this. Return the
-- outcome of the job: crash (it is requeued), failed, cancelled, or lost (the worker no longer held the lease).
CREATE FUNCTION pgqueue_crashed_v1(
    p_id bigint, p_lease bigint, p_reason text, p_delay double precision, p_crash_limit integer,
    p_keep_errors integer
) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    notable jsonb;
BEGIN
    -- Race: recovery may take the job from this worker at the same moment. The row lock decides which is first.
    PERFORM FROM pgqueue_job_live AS live WHERE live.id = p_id AND live.lease = p_lease FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'lost';
    END IF;
    SELECT given.notable INTO notable
    FROM pgqueue_give_back_v1(
        ARRAY[p_id], ARRAY[p_lease], ARRAY[true], ARRAY[false], ARRAY[true], p_reason, p_delay, p_crash_limit,
        p_keep_errors) AS given;
    RETURN notable -> 0 ->> 'outcome';  -- a crash is always in it
END $$;
