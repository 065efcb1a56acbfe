-- A service in another language enqueues a job that continues its trace, in German, for user 5.
SELECT pgqueue_enqueue(
    'shop.tasks.send_receipt', '[7]',
    options => '{"context": {
        "trace": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        "language": "de",
        "user": 5
    }}'
);
-- The jobs of a user, and of a trace.
SELECT id, status FROM pgqueue_job WHERE context ->> 'user' = '5';
SELECT id, status FROM pgqueue_job
WHERE context #>> '{trace,traceparent}' LIKE '00-0af7651916cd43dd8448eb211c80319c-%';
