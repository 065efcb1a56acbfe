-- Store the retentions from the settings of a worker that starts. Returns the previous values, or no row if they
-- are the same.
CREATE FUNCTION pgqueue_retain_v1(
    p_retention interval, p_failed_retention interval, OUT retention interval, OUT failed_retention interval
) RETURNS SETOF record LANGUAGE sql SET search_path FROM CURRENT AS $$
    WITH before AS (SELECT ring.* FROM pgqueue_ring AS ring FOR UPDATE)
    UPDATE pgqueue_ring AS ring
    SET retention = p_retention, failed_retention = p_failed_retention
    FROM before
    WHERE (before.retention, before.failed_retention) IS DISTINCT FROM (p_retention, p_failed_retention)
    RETURNING before.retention, before.failed_retention
$$;
