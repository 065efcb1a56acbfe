-- The stable name for reports and foreign tools: whether a worker may claim a job of this status once it is due.
-- NULL for what is no status.
CREATE FUNCTION pgqueue_status_is_claimable(status text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT word.is_claimable FROM pgqueue_status AS word WHERE word.status = pgqueue_status_is_claimable.status
$$;
