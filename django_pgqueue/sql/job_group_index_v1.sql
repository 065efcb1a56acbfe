-- The order of the claim of jobs with a group: workers go through the groups in turn, and through each group by time.
CREATE INDEX pgqueue_job_group ON pgqueue_job_live (queue_name, priority DESC, group_key, run_after, id)
    WHERE status IN ('pending', 'retry') AND group_key IS NOT NULL;
