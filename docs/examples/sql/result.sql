-- As shop_web.
SELECT pgqueue_enqueue('shop.tasks.send_receipt', '[5]') AS job;

-- Without a row, there is no such job, or another role has enqueued it.
SELECT status, is_finished, result, error_class FROM pgqueue_result(1);
