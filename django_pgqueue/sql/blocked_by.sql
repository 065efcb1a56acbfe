-- The stable name for plain SQL: SELECT * FROM pgqueue_blocked_by(5).
CREATE FUNCTION pgqueue_blocked_by(
    id bigint, OUT name text, OUT limit_key text, OUT is_full boolean, OUT allowed integer, OUT running integer,
    OUT place integer, OUT holders bigint[], OUT next_start timestamptz
) RETURNS SETOF record LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT * FROM pgqueue_blocked_by_v1(id) $$;
