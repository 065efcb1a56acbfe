-- The members of a batch, in each leaf. Jobs without a batch are not in it.
CREATE INDEX pgqueue_job_batch ON pgqueue_job (batch, id) WHERE batch IS NOT NULL;
