-- Internal. Which jobs maintenance has let go when their retention was over: none below first_id and none above
-- last_id. A payload outside of this range that has no job never had one (_pgqueue_sweep_payloads). One row, or none if
-- no job is gone yet.
CREATE TABLE pgqueue_gone (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    first_id bigint NOT NULL,
    last_id bigint NOT NULL
);
