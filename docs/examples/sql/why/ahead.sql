SELECT ahead.queue_name, ahead.priority, count(*) AS jobs
FROM pgqueue_job_live AS mine
JOIN pgqueue_job_live AS ahead ON ahead.priority > mine.priority
    OR ahead.queue_name = mine.queue_name AND ahead.priority = mine.priority
        AND (ahead.run_after, ahead.id) < (mine.run_after, mine.id)
WHERE mine.id = 1 AND ahead.status IN ('pending', 'retry')
    AND ahead.run_after <= clock_timestamp()
GROUP BY ahead.queue_name, ahead.priority
ORDER BY ahead.priority DESC, ahead.queue_name;
