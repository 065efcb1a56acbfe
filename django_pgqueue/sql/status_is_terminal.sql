-- The stable name for reports and other tools: whether a job with this status is over. NULL for an unknown status.
CREATE FUNCTION pgqueue_status_is_terminal(status text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT word.is_terminal FROM pgqueue_status AS word WHERE word.status = pgqueue_status_is_terminal.status
$$;
