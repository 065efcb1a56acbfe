TRUNCATE pgqueue_job, pgqueue_worker, pgqueue_stat, pgqueue_stat_rollup;
