-- The stable name for reports and foreign tools: whether a job of this status is over. NULL for what is no status.
CREATE FUNCTION pgqueue_status_is_terminal(status text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT word.is_terminal FROM pgqueue_status AS word WHERE word.status = pgqueue_status_is_terminal.status
$$;
