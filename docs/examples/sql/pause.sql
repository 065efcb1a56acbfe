SELECT pgqueue_pause('queue', 'mail', reason => 'the provider is down', until => now() + interval '2 hours');
SELECT pgqueue_pause('task', 'shop.tasks.send_receipt');
SELECT pgqueue_pause('all');
SELECT pgqueue_resume('all');
