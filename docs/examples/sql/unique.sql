SELECT pgqueue_enqueue(
    'shop.tasks.send_receipt', '[1]',
    options => '{"unique_key": "receipt-1", "unique_scope": "live", "on_conflict": "earliest"}'
);
