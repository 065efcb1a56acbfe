-- Internal. Payloads that have no job and never had one, because they were written without triggers, as restores and
-- replication do (session_replication_role = replica). Maintenance does not delete them, and forgets here those that
-- are gone or have a job.
CREATE TABLE pgqueue_stray (
    relation regclass NOT NULL,
    job_id bigint NOT NULL,
    PRIMARY KEY (relation, job_id)
);
