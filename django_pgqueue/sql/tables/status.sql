-- The names of the states of a job, as a table, for people, reports and other tools. No foreign key references
-- it, and no function on the hot path reads it.
CREATE TABLE pgqueue_status (
    status varchar(16) PRIMARY KEY,
    is_claimable boolean NOT NULL,
    is_terminal boolean NOT NULL
);

INSERT INTO pgqueue_status (status, is_claimable, is_terminal) VALUES
    ('pending', true, false),
    ('retry', true, false),
    ('running', false, false),
    ('blocked', false, false),
    ('done', false, true),
    ('failed', false, true),
    ('cancelled', false, true);
