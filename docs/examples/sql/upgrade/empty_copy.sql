TRUNCATE pgqueue_job, pgqueue_worker, pgqueue_stat;
