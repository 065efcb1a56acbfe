SELECT pgqueue_cancel(1);
SELECT pgqueue_retry(1, 2, 3);
SELECT pgqueue_cancel(VARIADIC ARRAY(
    SELECT id FROM pgqueue_job_live
    WHERE queue_name = 'mail' AND status IN ('pending', 'retry')
));
