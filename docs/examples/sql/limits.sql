SELECT pgqueue_enqueue(
    'shop.concurrency.ship', '[5, 1]', options => '{"limit_key": "5"}'
);
SELECT pgqueue_set_limit('task', 'shop.concurrency.ship', 2);
