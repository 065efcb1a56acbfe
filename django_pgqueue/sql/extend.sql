-- The stable name for plain SQL: SELECT pgqueue_extend(ARRAY[5], '10 minutes'). Returns how many of the jobs run.
CREATE FUNCTION pgqueue_extend(ids bigint[], duration interval) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT count(*)::integer FROM pgqueue_extend_v1(ids, date_part('epoch', duration))
$$;
