-- Which of these jobs and batches have not finished. Of the jobs, only the live leaf is read: it is small, and a plan
-- through the root would wait while a shelf of history is emptied. The array, rather than a join with it, is looked up
-- in the index of any plan.
SELECT id FROM pgqueue_job_live WHERE id = ANY (%s::bigint[])
UNION ALL
SELECT id FROM pgqueue_batch WHERE id = ANY (%s::bigint[]) AND finished_at IS NULL
