-- Whose jobs are running: recovery and the pages about workers read it.
CREATE INDEX pgqueue_job_running ON pgqueue_job_live (worker) WHERE status = 'running';
