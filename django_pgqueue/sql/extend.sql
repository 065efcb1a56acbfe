-- The stable name for plain SQL: SELECT pgqueue_extend(5, 60). Returns whether the job is running.
CREATE FUNCTION pgqueue_extend(id bigint, seconds double precision) RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT pgqueue_extend_v1(ARRAY[id], seconds))
$$;
