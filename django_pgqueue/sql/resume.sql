-- The stable name for plain SQL: SELECT pgqueue_resume('queue', 'mail').
CREATE FUNCTION pgqueue_resume(kind text, name text DEFAULT '') RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT pgqueue_resume_v1(kind, name) $$;
