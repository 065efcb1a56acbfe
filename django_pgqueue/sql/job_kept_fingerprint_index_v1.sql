-- The failed jobs of a group of failures.
CREATE INDEX pgqueue_job_kept_fingerprint ON pgqueue_job_kept (error_fingerprint, id) WHERE error_fingerprint <> '';
