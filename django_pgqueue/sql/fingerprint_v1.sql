-- Return the fingerprint of a failure for which nobody gave one: a lost worker, or a worker in another language. Failures
-- of one task with the same error class have the same one. worker/executor/errors.py computes it in the same way for
-- failures without a place in the code.
CREATE FUNCTION pgqueue_fingerprint_v1(p_task_path text, p_error jsonb) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT left(encode(sha256(convert_to(
        coalesce(p_error ->> 'class', '') || E'\n' || p_task_path, 'UTF8')), 'hex'), 40)
$$;
