-- The stable name for plain SQL: SELECT pgqueue_pause('queue', 'mail', reason => 'the provider is down').
CREATE FUNCTION pgqueue_pause(
    kind text,
    name text DEFAULT '',
    reason text DEFAULT '',
    author text DEFAULT '',
    until timestamptz DEFAULT NULL
) RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT pgqueue_pause_v1(kind, name, reason, author, until, NULL)
$$;
