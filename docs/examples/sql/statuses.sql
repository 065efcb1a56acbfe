SELECT job.status,
    pgqueue_status_is_claimable(job.status) AS waits,
    pgqueue_status_is_terminal(job.status) AS is_finished
FROM pgqueue_job AS job
WHERE job.id = 1;
