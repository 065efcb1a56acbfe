-- Move the times of the jobs into the past. Live ones are updated: their state does not change, so the
-- guard allows it. Finished jobs move by DELETE and INSERT, because the guard refuses updates of history. The
-- ORDER BY lets all be deleted before the first is inserted again.
UPDATE pgqueue_job_live SET {set};
WITH gone AS (DELETE FROM pgqueue_job WHERE shelf <> 0 RETURNING *)
INSERT INTO pgqueue_job ({columns}) SELECT {values} FROM gone ORDER BY gone.id;
