CREATE FUNCTION shop_order_paid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pgqueue_enqueue(
        'shop.tasks.send_receipt', jsonb_build_array(NEW.id), queue_name => 'mail');
    RETURN NULL;
END $$;

CREATE TRIGGER shop_order_paid AFTER UPDATE ON shop_order FOR EACH ROW
    WHEN (NEW.paid AND NOT OLD.paid) EXECUTE FUNCTION shop_order_paid();
