-- The other processes of a supervisor that is asked to stop read this in the row of one of them.
SELECT 'backoff', name, '', '', backoff_base, backoff_ceiling FROM pgqueue_queue
WHERE coalesce(backoff_base, backoff_ceiling) IS NOT NULL
UNION ALL
SELECT kind, name, author, reason, date_part('epoch', until - clock_timestamp()), NULL FROM pgqueue_pause
UNION ALL
SELECT 'drain', drain, '', '', NULL, NULL FROM pgqueue_worker
WHERE drain <> '' AND (id = {worker} OR supervisor = {supervisor} AND drain = 'stop')
UNION ALL
SELECT 'limit', CASE WHEN name = '*' THEN name ELSE substr(name, length('queue:') + 1) END, '', '',
    concurrency::float8, NULL
FROM pgqueue_limit WHERE name = '*' OR starts_with(name, 'queue:')
