-- The runs that wait for the previous job of their schedule, in order.
CREATE INDEX pgqueue_run_waiting ON pgqueue_schedule_run (schedule, run_at) WHERE outcome = 'waiting';
