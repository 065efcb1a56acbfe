-- The order of the claim. The predicate contains the statuses as literals, and so must every statement that is to
-- use the index: with parameters, a generic plan cannot prove the predicate. Jobs with a group stand apart: they are
-- claimed by another index (job_group_index_v1.sql), and this one tells when the next of them is due.
CREATE INDEX pgqueue_job_claim ON pgqueue_job_live (queue_name, is_grouped, priority DESC, run_after, id)
    WHERE status IN ('pending', 'retry');
