SELECT pgqueue_cancel(ARRAY[1]);
SELECT pgqueue_retry(ARRAY[1, 2, 3]);
SELECT pgqueue_run_now(ARRAY[4]);
SELECT pgqueue_cancel(ARRAY(
    SELECT id FROM pgqueue_job_live
    WHERE queue_name = 'mail' AND status IN ('pending', 'retry')
));
