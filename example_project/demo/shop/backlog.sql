-- Jobs that wait: most of them for their time within two days, some for their next attempt, some behind a pause, and some
-- that are due, of which the oldest has waited as long as the jobs of a busy queue do.
INSERT INTO pgqueue_job_live (
    status, task_path, queue_name, priority, run_after, enqueued_at, args, group_key, attempts, started_at,
    last_attempted_at, errors, error_fingerprint
)
SELECT CASE kind WHEN 'retry' THEN 'retry' ELSE 'pending' END,
    CASE kind
        WHEN 'retry' THEN %(error)s::jsonb ->> 'task_path'
        WHEN 'paused' THEN 'demoshop.sync.fetch'
        WHEN 'ready' THEN 'demoshop.images.thumbnail'
        ELSE 'demoshop.mail.send_newsletter'
    END,
    CASE kind
        WHEN 'retry' THEN 'demo-orders' WHEN 'paused' THEN 'demo-sync' WHEN 'ready' THEN 'demo-images' ELSE 'demo-mail'
    END,
    CASE WHEN kind = 'ready' AND n %% 10 = 0 THEN 10 ELSE 0 END,
    CASE kind
        WHEN 'retry' THEN now + interval '1 second' * (60 + n %% 1800)
        WHEN 'paused' THEN now - interval '1 second' * (n %% 5400)
        WHEN 'ready' THEN now - interval '1 second' * (n %% 20)
        ELSE now + interval '1 second' * (60 + 172000 * random())
    END,
    now - interval '2 hours',
    jsonb_build_array(n),
    CASE kind WHEN 'ready' THEN 'shop-' || n %% 7 END,
    CASE kind WHEN 'retry' THEN 1 ELSE 0 END,
    CASE kind WHEN 'retry' THEN now - interval '1 second' * (10 + n %% 1740) END,
    CASE kind WHEN 'retry' THEN now - interval '1 second' * (10 + n %% 1740) END,
    CASE kind WHEN 'retry' THEN jsonb_build_array(jsonb_build_object(
        'class', %(error)s::jsonb ->> 'name', 'message', replace(%(error)s::jsonb ->> 'message', '%%s', n::text),
        'traceback', %(error)s::jsonb ->> 'traceback', 'worker', %(worker)s::text, 'attempt', 1,
        'version', '2.4.1',
        'started_at', now - interval '1 second' * (10 + n %% 1740),
        'finished_at', now - interval '1 second' * (n %% 1740))) ELSE '[]' END,
    CASE kind WHEN 'retry' THEN %(error)s::jsonb ->> 'fingerprint' ELSE '' END
FROM statement_timestamp() AS now, generate_series(1, %(jobs)s) AS n, LATERAL (
    SELECT CASE
        WHEN n %% 100 = 7 THEN 'retry' WHEN n %% 20 IN (3, 11, 15) THEN 'paused' WHEN n %% 100 = 0 THEN 'ready'
        ELSE 'later'
    END AS kind
) AS kinds
