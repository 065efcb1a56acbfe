-- Note that maintenance lets go jobs from p_first to p_last; NULL: none.
CREATE FUNCTION pgqueue_note_gone_v1(p_first bigint, p_last bigint) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO pgqueue_gone AS gone (first_id, last_id)
    SELECT p_first, p_last WHERE p_first IS NOT NULL
    ON CONFLICT (one) DO UPDATE SET
        first_id = least(gone.first_id, excluded.first_id), last_id = greatest(gone.last_id, excluded.last_id)
    WHERE gone.first_id > excluded.first_id OR gone.last_id < excluded.last_id
$$;
