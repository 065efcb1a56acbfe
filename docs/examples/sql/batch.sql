-- A batch of three jobs, and a job that runs when all of them have finished.
DO $$
DECLARE
    batch bigint := pgqueue_open_batch('newsletter');
BEGIN
    PERFORM pgqueue_enqueue(
        'shop.workflows.send_newsletter', jsonb_build_array(customer), options => jsonb_build_object('batch', batch))
    FROM generate_series(1, 3) AS customer;
    PERFORM pgqueue_enqueue(
        'shop.workflows.clean_up',
        options => jsonb_build_object('after', jsonb_build_array(batch), 'if_failed', 'run'));
    PERFORM pgqueue_close_batch(batch);
END $$;
