-- Internal. The windows of unique keys: until when a key is taken by the job that was enqueued with it, whatever became
-- of that job. One row for each key. Maintenance deletes windows that are over, oldest first.
CREATE TABLE pgqueue_window (
    unique_key varchar(200) PRIMARY KEY,
    job_id bigint NOT NULL,
    until timestamptz NOT NULL
);

CREATE INDEX pgqueue_window_until ON pgqueue_window (until);
