-- Return whether this transaction must still wake the sleepers of a queue: true once for each queue. The queues
-- are remembered in a setting that ends with the transaction. SET pgqueue.notify = off turns the wake-up off, for
-- transactions that will be PREPAREd (PostgreSQL refuses those that have sent a NOTIFY).
CREATE FUNCTION pgqueue_wake_once_v1(p_queue_name text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    queues text := coalesce(current_setting('pgqueue.wake_once', true), '');
BEGIN
    IF strpos(queues, '/' || p_queue_name || '/') > 0 THEN
        RETURN false;
    ELSIF current_setting('pgqueue.notify', true) = 'off' THEN
        RETURN false;
    END IF;
    PERFORM set_config('pgqueue.wake_once', coalesce(nullif(queues, ''), '/') || p_queue_name || '/', true);
    RETURN true;
END $$;
