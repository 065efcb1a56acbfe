-- The schedules that may fire, by the time of the next look. A schedule without a next run comes first: the round
-- has to compute it.
CREATE INDEX pgqueue_schedule_due ON pgqueue_schedule (coalesce(next_run_at, timestamptz '1970-01-01 00:00:00+00'))
    WHERE paused_at IS NULL AND retired_at IS NULL;
