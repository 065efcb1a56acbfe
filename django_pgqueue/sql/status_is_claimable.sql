-- The stable name for reports and other tools: whether a worker may claim a job with this status once it is due.
-- NULL for an unknown status.
CREATE FUNCTION pgqueue_status_is_claimable(status text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT word.is_claimable FROM pgqueue_status AS word WHERE word.status = pgqueue_status_is_claimable.status
$$;
