-- Let the sequence of the jobs belong to a column that has no values of it. It is dropped and restarted with the table,
-- as before. But loaddata sets a sequence to the greatest value of the column that owns it, although the ids of batches
-- may be greater, and those of jobs that are no longer kept (keep_sequence_ahead in models/job.py).
ALTER SEQUENCE pgqueue_job_id_seq OWNED BY pgqueue_job.shelf;
