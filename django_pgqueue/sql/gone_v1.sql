-- Which jobs maintenance has let go when their retention was over: none below first_id and none above last_id. A payload
-- outside of this range that has no job never had one (sweep_payloads_v1.sql). One row, or none if no job is gone yet.
CREATE TABLE pgqueue_gone (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    first_id bigint NOT NULL,
    last_id bigint NOT NULL
);

-- An earlier version has not noted it: what is older than all history is gone.
INSERT INTO pgqueue_gone (first_id, last_id)
SELECT 0, min(job.id) - 1 FROM pgqueue_job AS job WHERE job.shelf <> 0 HAVING min(job.id) IS NOT NULL;
