-- Remove a worker in another language at its end. Returns whether it is gone: if it still holds a job, it stays, to be
-- found dead when its lease ends, and its jobs are requeued then.
-- Race: a claim of this worker holds its row until it commits. So this waits, and the statement after that sees the jobs.
CREATE FUNCTION pgqueue_unregister_worker(worker bigint) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM pgqueue_worker AS worker WHERE worker.id = pgqueue_unregister_worker.worker FOR UPDATE;
    PERFORM pgqueue_forget_workers_v1(ARRAY[pgqueue_unregister_worker.worker]);
    RETURN NOT EXISTS (SELECT FROM pgqueue_worker AS worker WHERE worker.id = pgqueue_unregister_worker.worker);
END $$;
