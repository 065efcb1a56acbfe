SELECT minute, sum(done) AS done, sum(retried) AS retried,
    sum(failed) AS failed, sum(cancelled) AS cancelled
FROM pgqueue_stat
WHERE minute > clock_timestamp() - interval '1 hour'
GROUP BY minute
ORDER BY minute;
