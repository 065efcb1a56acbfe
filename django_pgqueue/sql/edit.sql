-- The stable name for plain SQL: SELECT pgqueue_edit(ARRAY[5], priority => 10).
CREATE FUNCTION pgqueue_edit(
    ids bigint[],
    priority integer DEFAULT NULL,
    run_after timestamptz DEFAULT NULL,
    queue_name text DEFAULT NULL
) RETURNS integer LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT pgqueue_edit_v1(ids, priority, run_after, NULL, queue_name)
$$;
