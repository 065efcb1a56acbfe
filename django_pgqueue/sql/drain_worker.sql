-- Ask a worker process to finish its jobs and end. With replace, its supervisor starts another process in its place;
-- otherwise its supervisor and all of its processes end. Returns whether there is such a process.
--
-- Only one row changes: two updates of several rows, this and a heartbeat, could deadlock. The other processes of the
-- supervisor read it there.
CREATE FUNCTION pgqueue_drain_worker(worker bigint, replace boolean DEFAULT true) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    IF replace IS NULL THEN
        RAISE EXCEPTION 'pgqueue: drain_worker: replace must be true or false, not NULL'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE pgqueue_worker AS worker SET drain = CASE WHEN replace THEN 'replace' ELSE 'stop' END
    WHERE worker.id = pgqueue_drain_worker.worker AND worker.drain <> 'stop';  -- a stop is not taken back
    IF NOT FOUND AND NOT EXISTS (SELECT FROM pgqueue_worker AS worker WHERE worker.id = pgqueue_drain_worker.worker) THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(pgqueue_channel_v1(), 'drain');
    RETURN true;
END $$;
