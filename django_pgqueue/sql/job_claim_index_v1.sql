-- The order of the claim. Its predicate names the statuses as literals, and so must every statement
-- that is to use it: as parameters a generic plan cannot prove the predicate.
CREATE INDEX pgqueue_job_claim ON pgqueue_job_live (queue_name, priority DESC, run_after, id)
    WHERE status IN ('pending', 'retry');
