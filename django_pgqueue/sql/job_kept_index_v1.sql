-- One range for each queue and status, oldest first, for the sweep and the list of failures.
CREATE INDEX pgqueue_job_kept_sweep ON pgqueue_job_kept (queue_name, status, finished_at);
