SELECT pgqueue_edit(ARRAY[1, 2], priority => 10);
SELECT pgqueue_edit(
    ARRAY(SELECT id FROM pgqueue_job_live WHERE status = 'pending' AND queue_name = 'mail'),
    queue_name => 'slow', run_after => now() + interval '1 hour'
);
