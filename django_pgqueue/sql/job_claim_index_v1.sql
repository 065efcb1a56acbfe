-- The order of the claim. The predicate contains the statuses as literals, and so must every statement that is to
-- use the index: with parameters, a generic plan cannot prove the predicate.
CREATE INDEX pgqueue_job_claim ON pgqueue_job_live (queue_name, priority DESC, run_after, id)
    WHERE status IN ('pending', 'retry');
