-- Return whether this transaction must still wake the sleepers of a queue: true once for each queue. The queues
-- are remembered in a setting that ends with the transaction. SET pgqueue.notify = off turns the wake-up off, for
-- transactions that will be PREPAREd (PostgreSQL refuses ones that have sent a NOTIFY).
CREATE FUNCTION _pgqueue_wake_once(p_queue_name text) RETURNS boolean LANGUAGE plpgsql AS $$
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

-- Wake a worker, at commit, if one sleeps and no other session is waking it at the moment.
--
-- NOTIFY takes a lock on the whole database until the commit has reached the disk. A NOTIFY in every enqueuing
-- transaction would limit the server to one commit at a time, so sleepers hold the advisory lock `sleep` of their
-- queues in shared mode: if it can be taken exclusively, no worker sleeps. And one notifier at a time holds `notify`:
-- a second one may skip, because the first will wake a worker that scans after its commit.
-- Race: a commit that skips may become visible after that scan. The sleeper handles this by scanning again after
-- 5, 20, 60 and 200 ms (worker/producer/idle.py).
CREATE FUNCTION _pgqueue_wake() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    prefix text := 'pgqueue/' || TG_RELID || '/';
    here bigint := hashtextextended(prefix || 'sleep/' || NEW.queue_name, 0);
    anywhere bigint := hashtextextended(prefix || 'sleep/', 0);
    notifier bigint := hashtextextended(prefix || 'notify/' || NEW.queue_name, 0);
BEGIN
    -- Forget the queue: after SET CONSTRAINTS ALL IMMEDIATE a later enqueue must fire again.
    PERFORM set_config('pgqueue.wake_once',
        replace(current_setting('pgqueue.wake_once', true), '/' || NEW.queue_name || '/', '/'), true);
    IF (NOT CASE WHEN pg_try_advisory_lock(here) THEN pg_advisory_unlock(here) ELSE false END
        OR NOT CASE WHEN pg_try_advisory_lock(anywhere) THEN pg_advisory_unlock(anywhere) ELSE false END)
        AND pg_try_advisory_xact_lock(notifier)
    THEN
        PERFORM pg_notify('pgqueue_' || TG_RELID, 'wake ' || NEW.queue_name);
    END IF;
    RETURN NULL;
END $$;
