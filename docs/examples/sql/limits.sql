SELECT pgqueue_enqueue(
    'shop.concurrency.ship', '[5, 1]', options => '{"concurrency_key": "shop.concurrency.ship/5"}'
);
SELECT pgqueue_set_limit('shop.concurrency.ship', 2);
