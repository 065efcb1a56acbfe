-- The channel of this installation's notifications.
CREATE FUNCTION pgqueue_channel_v1() RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT 'pgqueue_' || 'pgqueue_job_live'::regclass::oid
$$;
