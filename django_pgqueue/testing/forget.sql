-- A worker empties a whole shelf, some time after the retention of its last job (``_pgqueue_rotate``).
WITH gone AS (
    DELETE FROM pgqueue_job AS job USING pgqueue_ring AS ring
    WHERE job.shelf BETWEEN 1 AND 8 AND job.finished_at < clock_timestamp() - ring.retention
    RETURNING job.id
)
SELECT _pgqueue_note_gone(min(gone.id), max(gone.id)) FROM gone
