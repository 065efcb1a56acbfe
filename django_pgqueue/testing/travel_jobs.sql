-- Move the times of the jobs into the past. Those that are not over are updated: their state does not change, so the
-- guard allows it. Those that are over move by DELETE and INSERT, because the guard lets nobody update history. The
-- ORDER BY lets all be deleted before the first is inserted again.
UPDATE pgqueue_job_live SET {set};
WITH gone AS (DELETE FROM pgqueue_job WHERE shelf <> 0 RETURNING *)
INSERT INTO pgqueue_job ({columns}) SELECT {values} FROM gone ORDER BY gone.id;
