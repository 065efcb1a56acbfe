-- The stable name for plain SQL: SELECT * FROM pgqueue_waits_for(5).
CREATE FUNCTION pgqueue_waits_for(
    id bigint, OUT parent_id bigint, OUT is_batch boolean, OUT name text, OUT state text, OUT if_failed text
) RETURNS SETOF record LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT * FROM pgqueue_waits_for_v1(id) $$;
