-- The jobs that were enqueued after a job or a batch, in each leaf: parents @> ARRAY[5::bigint]. Edges are deleted when
-- a parent ends, but this finds its children then, too. Jobs without parents are not in it.
CREATE INDEX pgqueue_job_parents ON pgqueue_job USING gin (parents) WHERE parents IS NOT NULL;
