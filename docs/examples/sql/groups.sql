SELECT pgqueue_enqueue('shop.tenants.render', args => '["acme", 7]', options => '{"group_key": "acme"}');

SELECT group_key, count(*) AS waiting, min(run_after) AS oldest
FROM pgqueue_job
WHERE shelf = 0 AND status IN ('pending', 'retry') AND group_key IS NOT NULL
GROUP BY group_key
ORDER BY waiting DESC
LIMIT 10;
