-- The stable name for workers in other languages: SELECT pgqueue_sign_off(77).
CREATE FUNCTION pgqueue_sign_off(worker bigint) RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_sign_off_v1(worker) $$;
