-- Internal. What one session at a time may do, of all supervisors and workers: whoever has locked the row does it
-- (_pgqueue_on_duty). Every role that may connect can take an advisory lock, and look up in pg_locks which ones are
-- taken. A row can be locked only by roles that may change it.
CREATE TABLE pgqueue_duty (name varchar(32) PRIMARY KEY);

INSERT INTO pgqueue_duty (name) VALUES
    ('alerts'), ('batches'), ('edges'), ('failures'), ('kept'), ('lines'), ('recover'), ('ring'), ('schedules'),
    ('statistics'), ('unpause');
