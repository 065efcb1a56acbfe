-- Once, as an administrator. The passwords are yours.
CREATE ROLE shop_web LOGIN PASSWORD 'change-me' IN ROLE pgqueue_enqueuer;
CREATE ROLE shop_worker LOGIN PASSWORD 'change-me-too' IN ROLE pgqueue_worker;

-- The worker needs the rights that your tasks need.
GRANT SELECT, INSERT, UPDATE, DELETE ON shop_order TO shop_worker;
