-- 1. Once, at the start. The answer is the id of the worker.
SELECT pgqueue_register_worker('app-1', '{media}', pid => 4711);

-- 2. Every 5 seconds, on a connection that no job keeps busy.
SELECT registered, cancel_requested, asked_to_end FROM pgqueue_heartbeat(:worker);

-- 3. When there is room for two jobs.
SELECT id, lease, task_path, args, kwargs, attempts_left FROM pgqueue_claim('{media}', 2, :worker);

-- 4. When a job has ended.
CALL pgqueue_finish(:job, :lease, 'done', result => '4', started_ago => 0.3);

-- 5. At the end, after the last report.
SELECT pgqueue_unregister_worker(:worker);
