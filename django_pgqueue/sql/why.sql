-- The stable name for plain SQL: SELECT * FROM pgqueue_why(5). The defaults are those of the settings.
CREATE FUNCTION pgqueue_why(
    id bigint, heartbeat double precision DEFAULT 1, lease double precision DEFAULT 30, OUT code text, OUT facts jsonb
) RETURNS record LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT * FROM pgqueue_why_v1(id, heartbeat, lease)
$$;
