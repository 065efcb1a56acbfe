SELECT setval('pgqueue_job_id_seq', coalesce(max(id), 0) + 1000000)
FROM pgqueue_job;
