-- The beginning of each part of the statement for one step; the conditions are in workflow.py. The ids are values of
-- the statement and not columns of another table, so each leaf of the table is read through its indexes.
SELECT job.id, job.task_path, job.status, job.marks, job.batch, coalesce(job.parents, '{}'), job.waiting_reason
FROM pgqueue_job AS job WHERE
