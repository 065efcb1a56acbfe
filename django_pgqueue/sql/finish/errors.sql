-- Append what an attempt leaves to the errors or the logs of a job; NULL: nothing. The first and the last p_keep are
-- kept, so that a job that is retried or snoozed forever does not grow forever.
--
-- It is STABLE because jsonb_build_array() is: the server inlines no function that claims to be less volatile than its
-- body, and a call for each job costs 3 microseconds.
CREATE FUNCTION _pgqueue_append(p_list jsonb, p_item jsonb, p_keep integer) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN p_item IS NULL THEN p_list
        WHEN jsonb_array_length(p_list) >= 2 * p_keep THEN (p_list - p_keep) || jsonb_build_array(p_item)
        ELSE coalesce(p_list, '[]') || jsonb_build_array(p_item)
    END
$$;

-- Return the fingerprint of a failure without one: a lost worker, or a worker in another language.
-- Failures of one task with the same error class have the same one. worker/executor/errors.py computes it in the same
-- way for failures without a place in the code.
CREATE FUNCTION _pgqueue_fingerprint(p_task_path text, p_error jsonb) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT left(encode(sha256(convert_to(
        coalesce(p_error ->> 'class', '') || E'\n' || p_task_path, 'UTF8')), 'hex'), 40)
$$;

-- Note failed attempts for the groups of failures. Only _pgqueue_finish calls this, in the transaction of the report,
-- so an attempt is counted if and only if its report was accepted, whoever sent it. The newest job of each kind is its
-- sample.
--
-- No job depends on that, so if the role may not write there, the note is left out, and the log of the server says so:
-- a refusal here would be one of the outcomes of the jobs.
CREATE FUNCTION _pgqueue_note_failures(p_failed pgqueue_failed[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO pgqueue_failure_note (
        fingerprint, task_path, queue_name, version, failed, retried, job_id, error_class, message, traceback
    )
    SELECT kind.fingerprint, kind.task_path, kind.queue_name, kind.version, kind.failed, kind.retried, kind.job_id,
        left(coalesce(kind.error ->> 'class', ''), 255), left(coalesce(kind.error ->> 'message', ''), 500),
        coalesce(kind.error ->> 'traceback', '')
    FROM (
        SELECT one.fingerprint, one.task_path, one.queue_name,
            left(coalesce(one.error ->> 'version', ''), 50) AS version,
            count(*) FILTER (WHERE one.is_final) AS failed, count(*) FILTER (WHERE NOT one.is_final) AS retried,
            max(one.id) AS job_id, (array_agg(one.error ORDER BY one.id DESC))[1] AS error
        FROM unnest(p_failed) AS one GROUP BY 1, 2, 3, 4
    ) AS kind;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'pgqueue: failed attempts are not counted: %', SQLERRM;
END $$;
