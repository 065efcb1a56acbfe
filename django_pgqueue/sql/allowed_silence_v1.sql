-- How many seconds a worker may be silent before it may be dead: two heartbeats, and three if no job has started in it,
-- since its supervisor then leaves out every second heartbeat. The half covers a heartbeat that comes a little late.
CREATE FUNCTION pgqueue_allowed_silence_v1(
    p_started_jobs bigint[], p_heartbeat double precision, p_lease double precision
) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT least(p_lease, p_heartbeat * CASE WHEN p_started_jobs = '{}' THEN 3.5 ELSE 2.5 END)
$$;
