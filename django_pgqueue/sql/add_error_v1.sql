-- The errors of a job with one more: the first and the last `p_keep` stay.
CREATE FUNCTION pgqueue_add_error_v1(p_errors jsonb, p_error jsonb, p_keep integer) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_error IS NULL THEN p_errors
        WHEN jsonb_array_length(p_errors) >= 2 * p_keep THEN (p_errors - p_keep) || jsonb_build_array(p_error)
        ELSE p_errors || jsonb_build_array(p_error)
    END
$$;
