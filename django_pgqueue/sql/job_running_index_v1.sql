-- The running jobs of each worker, for recovery and the admin pages about workers.
CREATE INDEX pgqueue_job_running ON pgqueue_job_live (worker) WHERE status = 'running';
