-- The stable name for workers in other languages: CALL pgqueue_finish_one(5, 77, 'done').
CREATE PROCEDURE pgqueue_finish_one(
    id bigint, lease bigint, outcome text, result jsonb DEFAULT NULL, error jsonb DEFAULT NULL,
    fingerprint text DEFAULT NULL, delay double precision DEFAULT NULL,
    started_ago double precision DEFAULT NULL, duration double precision DEFAULT NULL,
    reason text DEFAULT NULL, keep_errors integer DEFAULT 20
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    CALL pgqueue_finish_one_v1(
        id, lease, outcome, result, error, fingerprint, delay, started_ago, duration, reason, keep_errors);
END $$;
