-- The members of a batch in history.
DO $$
BEGIN
    CREATE INDEX pgqueue_job_kept_batch ON pgqueue_job_kept (batch, id) WHERE batch IS NOT NULL;
    FOR shelf IN 1..8 LOOP
        EXECUTE format(
            'CREATE INDEX pgqueue_job_past_batch_%s ON pgqueue_job_past_%1$s (batch, id) WHERE batch IS NOT NULL', shelf);
    END LOOP;
END $$;
