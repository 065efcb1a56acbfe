-- The last error of a job, without its traceback, for why.sql. NULL if there is none.
CREATE FUNCTION pgqueue_why_error_v1(p_errors jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object(
        'class', left(last.error ->> 'class', 300), 'message', left(last.error ->> 'message', 500),
        'step', last.error ->> 'step', 'attempt', last.error -> 'attempt')
    FROM (SELECT p_errors -> -1 AS error) AS last WHERE jsonb_typeof(last.error) = 'object'
$$;
