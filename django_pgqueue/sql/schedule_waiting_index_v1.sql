-- The schedules with runs that wait for the previous job. There are few.
CREATE INDEX pgqueue_schedule_waiting ON pgqueue_schedule (name)
    WHERE waiting > 0 AND paused_at IS NULL AND retired_at IS NULL;
