SELECT setval('pgqueue_job_id_seq', (SELECT coalesce(max(id), 0) FROM pgqueue_job) + 1000000);
