-- Return the shelf for a finished job: the ring, the kept leaf, or none (NULL: the job is not kept).
CREATE FUNCTION pgqueue_shelf_v1(
    p_status text, p_retention interval, p_failed_retention interval, p_ring pgqueue_ring
) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_status = 'failed' THEN
            CASE WHEN coalesce(p_failed_retention, p_ring.failed_retention) > interval '0' THEN 9::smallint END
        WHEN p_retention IS NULL THEN
            CASE WHEN p_ring.retention > interval '0' THEN p_ring.current END
        WHEN p_retention > interval '0' THEN 9::smallint
    END
$$;
