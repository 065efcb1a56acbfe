-- Whether this transaction must still look after the sleepers of a queue: true once for each queue,
-- remembered in a setting that ends with the transaction. SET pgqueue.notify = off turns the wake-up
-- off, for transactions that will be PREPAREd (PostgreSQL refuses those that have sent a NOTIFY).
CREATE FUNCTION pgqueue_arm_v1(p_queue_name text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    armed text := coalesce(current_setting('pgqueue.armed', true), '');
BEGIN
    IF strpos(armed, '/' || p_queue_name || '/') > 0 THEN
        RETURN false;
    ELSIF current_setting('pgqueue.notify', true) = 'off' THEN
        RETURN false;
    END IF;
    PERFORM set_config('pgqueue.armed', coalesce(nullif(armed, ''), '/') || p_queue_name || '/', true);
    RETURN true;
END $$;
