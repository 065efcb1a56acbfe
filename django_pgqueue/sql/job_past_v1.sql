-- The ring of history. Finished jobs move to the current shelf. The ring turns (pgqueue_rotate_v1), and the
-- oldest shelf is emptied by TRUNCATE, so that history needs no DELETE and no vacuum.
DO $$
BEGIN
    FOR shelf IN 1..8 LOOP
        EXECUTE format(
            'CREATE TABLE pgqueue_job_past_%s PARTITION OF pgqueue_job (
                PRIMARY KEY (id),
                CONSTRAINT pgqueue_job_past_%1$s_over CHECK (
                    status NOT IN (''pending'', ''retry'', ''running'', ''blocked'') AND finished_at IS NOT NULL
                )
            ) FOR VALUES IN (%1$s) WITH (autovacuum_vacuum_insert_threshold = -1)', shelf);
        EXECUTE format(
            'CREATE INDEX pgqueue_job_past_%s_finished ON pgqueue_job_past_%1$s (finished_at)', shelf);
    END LOOP;
END $$;
