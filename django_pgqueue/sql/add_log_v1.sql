-- Add what an attempt has logged to the logs of a job. As with the errors (pgqueue_add_error_v1), the first and the last
-- `p_keep` attempts are kept, so that a job that is retried or snoozed forever does not grow forever.
CREATE FUNCTION pgqueue_add_log_v1(p_logs jsonb, p_log jsonb, p_keep integer)
RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN jsonb_array_length(p_logs) >= 2 * p_keep THEN p_logs - p_keep
        ELSE coalesce(p_logs, '[]')
    END || jsonb_build_array(p_log)
$$;
