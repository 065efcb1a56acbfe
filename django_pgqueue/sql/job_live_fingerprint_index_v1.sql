-- The jobs of a group of failures that are not over. Jobs that have not failed are not in it.
CREATE INDEX pgqueue_job_live_fingerprint ON pgqueue_job_live (error_fingerprint, id) WHERE error_fingerprint <> '';
