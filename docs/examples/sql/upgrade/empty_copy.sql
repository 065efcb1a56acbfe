TRUNCATE pgqueue_job, pgqueue_worker, pgqueue_stat, pgqueue_stat_rollup, pgqueue_failure_group,
    pgqueue_failure_count, pgqueue_failure_note, pgqueue_alert;
