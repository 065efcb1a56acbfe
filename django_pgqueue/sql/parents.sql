-- The stable name for plain SQL: SELECT * FROM pgqueue_parents(5).
CREATE FUNCTION pgqueue_parents(
    id bigint, OUT parent_id bigint, OUT is_batch boolean, OUT name text, OUT state text, OUT if_failed text
) RETURNS SETOF record LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT * FROM pgqueue_parents_v1(id) $$;
