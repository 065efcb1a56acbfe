-- Remove everything of the demonstration. Each statement names what belongs to it by the prefix of its queue or task.
DELETE FROM pgqueue_progress WHERE job_id IN (
    SELECT id FROM pgqueue_job_live WHERE queue_name LIKE 'demo-%%');
DELETE FROM pgqueue_step WHERE job_id IN (SELECT id FROM pgqueue_job_live WHERE queue_name LIKE 'demo-%%');
DELETE FROM pgqueue_edge WHERE child_id IN (SELECT id FROM pgqueue_job_live WHERE queue_name LIKE 'demo-%%');
DELETE FROM pgqueue_tally WHERE batch_id IN (SELECT id FROM pgqueue_batch WHERE name LIKE 'demo: %%');
DELETE FROM pgqueue_batch WHERE name LIKE 'demo: %%';
DELETE FROM pgqueue_schedule_run WHERE schedule LIKE 'demo-%%';
DELETE FROM pgqueue_schedule WHERE name LIKE 'demo-%%';
DELETE FROM pgqueue_queue WHERE name LIKE 'demo-%%';
DELETE FROM pgqueue_limit WHERE name LIKE 'demoshop.%%';
DELETE FROM pgqueue_rate WHERE key LIKE 'demoshop.%%';
DELETE FROM pgqueue_pause WHERE name LIKE 'demo-%%' OR name LIKE 'demoshop.%%';
DELETE FROM pgqueue_window WHERE unique_key LIKE 'demo-%%';
DELETE FROM pgqueue_job WHERE queue_name LIKE 'demo-%%';
DELETE FROM pgqueue_worker WHERE host LIKE 'demo-%%';
DELETE FROM pgqueue_failure_note WHERE task_path LIKE 'demoshop.%%';
DELETE FROM pgqueue_failure_count WHERE task_path LIKE 'demoshop.%%';
DELETE FROM pgqueue_failure_group AS one WHERE EXISTS (
    SELECT FROM unnest(one.tasks) AS task (path) WHERE task.path LIKE 'demoshop.%%');
DELETE FROM pgqueue_stat WHERE queue_name LIKE 'demo-%%';
DELETE FROM pgqueue_stat_rollup WHERE queue_name LIKE 'demo-%%';
DELETE FROM pgqueue_depth WHERE queue_name = '' OR queue_name LIKE 'demo-%%';
