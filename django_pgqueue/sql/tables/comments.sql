-- What people read in SQL, of the tables that Django makes, and of a job what is for the queue alone.
COMMENT ON TABLE pgqueue_queue IS 'The settings of a queue; NULL: the setting of the project.';
COMMENT ON TABLE pgqueue_pause IS
    'Pauses of queues, of tasks, and of everything. pgqueue_pause() and pgqueue_resume() write it.';
COMMENT ON TABLE pgqueue_limit IS
    'How many jobs may run at once, or start in a period. pgqueue_set_limit() and pgqueue_reset_limit() write it.';
COMMENT ON TABLE pgqueue_worker IS 'The worker processes. heartbeat_at is when each was last heard of.';
COMMENT ON TABLE pgqueue_schedule IS 'A task, its arguments, and when it is enqueued.';
COMMENT ON TABLE pgqueue_schedule_run IS 'The times at which schedules were due, and what came of each.';
COMMENT ON TABLE pgqueue_stat IS 'A minute of a task in a queue: how its attempts ended, how long they waited and ran.';
COMMENT ON TABLE pgqueue_failure_group IS 'Failures with the same fingerprint, with the newest one as a sample.';
COMMENT ON TABLE pgqueue_failure_count IS
    'Internal. How many attempts of a group failed in a quarter of an hour, an hour, or a day.';
COMMENT ON TABLE pgqueue_alert IS 'Internal. Problems that last, or ended a short while ago.';

COMMENT ON COLUMN pgqueue_job.marks IS 'Internal. What has to be settled when the job has finished.';
COMMENT ON COLUMN pgqueue_job.lost_in_a_row IS
    'Internal. How many of its runs in a row were lost in the death of more than one process.';
COMMENT ON COLUMN pgqueue_job.is_grouped IS 'Internal. Whether it has a group.';
COMMENT ON COLUMN pgqueue_job.lease IS 'Internal. The lease of the claim under which it runs, or ended.';
