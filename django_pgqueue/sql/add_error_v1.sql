-- Add an error to the errors of a job, with the times of its attempt. The first and the last `p_keep` are kept.
-- It is VOLATILE because clock_timestamp() is: the server inlines no function that claims to be less volatile than
-- its body, and running a function for each row costs more than its body.
CREATE FUNCTION pgqueue_add_error_v1(p_errors jsonb, p_error jsonb, p_began timestamptz, p_keep integer)
RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN p_error IS NULL THEN p_errors
        ELSE CASE
            WHEN jsonb_array_length(p_errors) >= 2 * p_keep THEN p_errors - p_keep
            ELSE p_errors
        END || jsonb_build_array(
            p_error || jsonb_build_object('started_at', p_began, 'finished_at', clock_timestamp()))
    END
$$;
