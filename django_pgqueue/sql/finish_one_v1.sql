-- Report one outcome, and raise an error if it is refused. This is for atomic tasks, whose transaction must fail
-- if the lease is lost, and for workers in other languages. The codes are in class 23 (integrity), because
-- class 55 would look like an outage.
--   23Q01 there is no such live job    23Q02 the lease has changed    23Q03 the job is not running
CREATE PROCEDURE pgqueue_finish_one_v1(
    p_id bigint, p_lease bigint, p_outcome text, p_result jsonb DEFAULT NULL, p_error jsonb DEFAULT NULL,
    p_fingerprint text DEFAULT NULL, p_delay double precision DEFAULT NULL,
    p_started_ago double precision DEFAULT NULL, p_duration double precision DEFAULT NULL,
    p_reason text DEFAULT NULL, p_keep_errors integer DEFAULT 20, p_log jsonb DEFAULT NULL
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    job record;
BEGIN
    IF p_outcome IS NULL OR p_outcome NOT IN ('done', 'failed', 'cancelled', 'retry', 'snooze', 'release', 'unknown') THEN
        RAISE EXCEPTION 'pgqueue: outcome % is not one of done, failed, cancelled, retry, snooze, release, unknown',
            quote_nullable(p_outcome) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT live.status, live.lease INTO job FROM pgqueue_job_live AS live WHERE live.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: there is no live job %', p_id USING ERRCODE = '23Q01',
            HINT = 'It is over, or its lease was lost and another worker finished it.';
    ELSIF job.status <> 'running' THEN
        RAISE EXCEPTION 'pgqueue: job % is %, not running', p_id, job.status USING ERRCODE = '23Q03',
            HINT = 'Its lease was lost and it was requeued.';
    ELSIF job.lease IS DISTINCT FROM p_lease THEN
        RAISE EXCEPTION 'pgqueue: job % is leased to another claim', p_id USING ERRCODE = '23Q02',
            HINT = 'The lease was lost: nothing of this attempt may be committed.';
    END IF;
    PERFORM pgqueue_finish_v1(
        ARRAY[p_id], ARRAY[p_lease], ARRAY[p_outcome], ARRAY[p_result], ARRAY[p_error], ARRAY[p_fingerprint],
        ARRAY[p_delay], ARRAY[p_started_ago], ARRAY[p_duration], ARRAY[p_reason], p_keep_errors,
        CASE WHEN p_log IS NOT NULL THEN ARRAY[p_log] END);
END $$;
