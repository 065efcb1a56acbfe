-- It goes to the queue that the task declares: mail
SELECT pgqueue_enqueue('shop.tasks.send_receipt', '[1]');

SELECT pgqueue_enqueue(
    'shop.tasks.send_receipt',
    kwargs => '{"order_id": 1}',
    queue_name => 'receipts',
    priority => 10,
    run_after => now() + interval '5 minutes',
    metadata => '{"why": "import"}'
);
