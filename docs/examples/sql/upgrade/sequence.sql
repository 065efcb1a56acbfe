SELECT setval('pgqueue_job_id_seq', coalesce(max(id), 0) + 1000000)
FROM pgqueue_job;

SELECT setval(pg_get_serial_sequence('pgqueue_schedule_run', 'id'), coalesce(max(id), 0) + 1000000)
FROM pgqueue_schedule_run;

SELECT setval(pg_get_serial_sequence('pgqueue_stat', 'id'), coalesce(max(id), 0) + 1000000)
FROM pgqueue_stat;

SELECT setval(pg_get_serial_sequence('pgqueue_stat_rollup', 'id'), coalesce(max(id), 0) + 1000000)
FROM pgqueue_stat_rollup;

SELECT setval(pg_get_serial_sequence('pgqueue_pause', 'id'), coalesce(max(id), 0) + 1000000)
FROM pgqueue_pause;

SELECT setval(pg_get_serial_sequence('pgqueue_failure_count', 'id'), coalesce(max(id), 0) + 1000000)
FROM pgqueue_failure_count;

SELECT setval(pg_get_serial_sequence('pgqueue_failure_note', 'id'), coalesce(max(id), 0) + 1000000)
FROM pgqueue_failure_note;

SELECT setval(pg_get_serial_sequence('pgqueue_alert', 'id'), coalesce(max(id), 0) + 1000000)
FROM pgqueue_alert;
