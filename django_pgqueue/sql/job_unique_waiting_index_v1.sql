-- At most one job with a key waits (scope 'waiting'). The statuses are literals, as in the index of the claim.
-- Jobs without a key are in neither this index nor the next.
CREATE UNIQUE INDEX pgqueue_job_unique_waiting ON pgqueue_job_live (unique_key)
    WHERE unique_scope = 'waiting' AND status IN ('pending', 'retry', 'blocked');
