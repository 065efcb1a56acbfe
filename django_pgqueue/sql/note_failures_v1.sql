-- Note failed attempts for the groups of failures. Only finish_v1.sql calls this, in the transaction of the report, so an
-- attempt is counted if and only if its report was accepted, whoever sent it. The newest job of each kind is its sample.
CREATE FUNCTION pgqueue_note_failures_v1(p_failed pgqueue_failed_v1[]) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO pgqueue_failure_note (
        fingerprint, task_path, queue_name, version, failed, retried, job_id, error_class, message, traceback
    )
    SELECT kind.fingerprint, kind.task_path, kind.queue_name, kind.version, kind.failed, kind.retried, kind.job_id,
        left(coalesce(kind.error ->> 'class', ''), 255), left(coalesce(kind.error ->> 'message', ''), 500),
        coalesce(kind.error ->> 'traceback', '')
    FROM (
        SELECT one.fingerprint, one.task_path, one.queue_name, left(coalesce(one.error ->> 'version', ''), 50) AS version,
            count(*) FILTER (WHERE one.is_final) AS failed, count(*) FILTER (WHERE NOT one.is_final) AS retried,
            max(one.id) AS job_id, (array_agg(one.error ORDER BY one.id DESC))[1] AS error
        FROM unnest(p_failed) AS one GROUP BY 1, 2, 3, 4
    ) AS kind
$$;
