-- Charge the starts of a claim to the rates of the queues, and of the installation, whose room it has asked for
-- (room_v1.sql). p_started has the queue of each job that starts. Returns how many rates were charged.
CREATE FUNCTION pgqueue_charge_queues_v1(p_limited text[], p_started text[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN pgqueue_charge_v1(ARRAY(
        SELECT CASE WHEN limited.name = '*' THEN '*' ELSE 'queue:' || limited.name END
        FROM unnest(p_limited) AS limited (name)
        JOIN unnest(p_started) AS started (queue_name) ON limited.name IN ('*', started.queue_name)));
END $$;
