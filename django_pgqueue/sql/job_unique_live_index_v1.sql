-- At most one job with a key is not over (scope 'live').
CREATE UNIQUE INDEX pgqueue_job_unique_live ON pgqueue_job_live (unique_key) WHERE unique_scope = 'live';
