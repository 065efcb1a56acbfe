-- The live members of a batch, the youngest first. The order is that of an expression, so that only this index has it: a
-- planner that expects members everywhere would look for the first one in the whole table, and after the last member has
-- ended, there is none. Statements use the same order: ORDER BY -id LIMIT 1. Jobs without a batch are not in it.
CREATE INDEX pgqueue_job_batch ON pgqueue_job_live (batch, (-id)) WHERE batch IS NOT NULL;
