-- The order of the claim. The predicate contains the statuses as literals, and so must every statement that is to
-- use the index: with parameters, a generic plan cannot prove the predicate. Jobs with a group stand apart: they are
-- claimed by the next index, and this one says when the next of them is due.
CREATE INDEX pgqueue_job_claim ON pgqueue_job_live (queue_name, is_grouped, priority DESC, run_after, id)
    WHERE status IN ('pending', 'retry');

-- The order of the claim of jobs with a group: workers go through the groups in turn, and through each group by time.
CREATE INDEX pgqueue_job_group ON pgqueue_job_live (queue_name, priority DESC, group_key, run_after, id)
    WHERE status IN ('pending', 'retry') AND group_key IS NOT NULL;

-- The running jobs of each worker, for recovery and the admin pages about workers.
CREATE INDEX pgqueue_job_running ON pgqueue_job_live (worker) WHERE status = 'running';

-- At most one job with a key waits (scope 'waiting'). The statuses are literals, as in the index of the claim.
-- Jobs without a key are in neither this index nor the next.
CREATE UNIQUE INDEX pgqueue_job_unique_waiting ON pgqueue_job_live (unique_key)
    WHERE unique_scope = 'waiting' AND status IN ('pending', 'retry', 'blocked');

-- At most one job with a key is not over (scope 'live').
CREATE UNIQUE INDEX pgqueue_job_unique_live ON pgqueue_job_live (unique_key) WHERE unique_scope = 'live';

-- One range for each queue and status, oldest first, for the sweep and the list of failures.
CREATE INDEX pgqueue_job_kept_sweep ON pgqueue_job_kept (queue_name, status, finished_at);

-- The running jobs of each limit key, which hold its slots.
CREATE INDEX pgqueue_job_slot ON pgqueue_job_live (limit_key)
    WHERE status = 'running' AND limit_key IS NOT NULL;

-- The lines: the jobs of each limit key that wait, in each queue in the order in which they start.
CREATE INDEX pgqueue_job_line ON pgqueue_job_live (limit_key, queue_name, priority DESC, wait_position)
    WHERE status IN ('pending', 'retry', 'blocked') AND wait_position IS NOT NULL;

-- The jobs of each queue that are blocked, or that wait for their next attempt, by when that is due.
CREATE INDEX pgqueue_job_state ON pgqueue_job_live (status, queue_name, run_after) WHERE status IN ('retry', 'blocked');

-- The minutes whose depths are old enough to be thinned out.
CREATE INDEX pgqueue_depth_minute ON pgqueue_depth (minute);

-- The jobs that a pause has put aside. A statement that is to use it repeats the whole predicate.
CREATE INDEX pgqueue_job_paused ON pgqueue_job_live (task_path, waiting_reason, id)
    WHERE status = 'blocked' AND starts_with(waiting_reason, 'paused');

-- The live members of a batch, the youngest first. The order is that of an expression, so that only this index has it:
-- a planner that expects members everywhere would search the whole table for the first one, and after the last member
-- has ended, there is none. Statements use the same order: ORDER BY -id LIMIT 1. Jobs without a batch are not in it.
CREATE INDEX pgqueue_job_batch ON pgqueue_job_live (batch, (-id)) WHERE batch IS NOT NULL;

-- The members of a batch in history; also in each leaf of the ring (tables/job.sql).
CREATE INDEX pgqueue_job_kept_batch ON pgqueue_job_kept (batch, id) WHERE batch IS NOT NULL;

-- The jobs that were enqueued after a job or a batch, in each leaf: parents @> ARRAY[5::bigint]. Edges are deleted when
-- a parent ends, but this finds its children then, too. Jobs without parents are not in it.
CREATE INDEX pgqueue_job_parents ON pgqueue_job USING gin (parents) WHERE parents IS NOT NULL;

-- The jobs with an indexed argument, in each leaf: searched @> ARRAY['order_id=17']. Jobs of tasks that index none are
-- not in it.
CREATE INDEX pgqueue_job_searched ON pgqueue_job USING gin (searched) WHERE searched IS NOT NULL;

-- The jobs of a tenant, in each leaf, the newest first. Jobs without a tenant are not in it.
CREATE INDEX pgqueue_job_tenant ON pgqueue_job (tenant, id) WHERE tenant IS NOT NULL;

-- The jobs that wait for others, for maintenance. A statement that is to use it repeats the whole predicate.
CREATE INDEX pgqueue_job_waits ON pgqueue_job_live (id)
    WHERE status = 'blocked' AND starts_with(waiting_reason, 'waits for job');

-- The jobs of a group of failures that are not over. Jobs that have not failed are not in it.
CREATE INDEX pgqueue_job_live_fingerprint ON pgqueue_job_live (error_fingerprint, id) WHERE error_fingerprint <> '';

-- The failed jobs of a group of failures.
CREATE INDEX pgqueue_job_kept_fingerprint ON pgqueue_job_kept (error_fingerprint, id) WHERE error_fingerprint <> '';

-- The schedules that may fire, by the time of the next look. A schedule without a next run comes first: the round
-- has to compute it.
CREATE INDEX pgqueue_schedule_due ON pgqueue_schedule (coalesce(next_run_at, timestamptz '1970-01-01 00:00:00+00'))
    WHERE paused_at IS NULL AND retired_at IS NULL;

-- The schedules with runs that wait for the previous job. There are few.
CREATE INDEX pgqueue_schedule_waiting ON pgqueue_schedule (name)
    WHERE waiting > 0 AND paused_at IS NULL AND retired_at IS NULL;

-- The runs that wait for the previous job of their schedule, in order.
CREATE INDEX pgqueue_run_waiting ON pgqueue_schedule_run (schedule, run_at) WHERE outcome = 'waiting';

-- The minutes that are not in the sums yet. There are only the last minutes, so each figure of a long span
-- reads this index to its end.
CREATE INDEX pgqueue_stat_pending ON pgqueue_stat (minute) WHERE NOT rolled_up;
