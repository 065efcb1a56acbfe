-- Which jobs start before a waiting one (why.sql), as the claim reads them: the due jobs of higher priorities in the
-- queues of its worker, then those of its queue and priority that were due earlier. Of several workers, the one with the
-- fewest of them counts. A job of a group waits for those of its group, while groups take turns. One that is blocked by
-- its limit key is in the wait queue of the key: what stands before it is its place, and the first one starts next.
--
-- Counts end at 1,001, which means more than 1,000.
CREATE FUNCTION pgqueue_why_ahead_v1(
    p_job pgqueue_job_live, p_now timestamptz, p_queues jsonb[], p_excluded jsonb[]
) RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    most constant integer := 1001;
    paused text[];
    served record;
    higher integer := most;
    same integer;
    groups integer;
BEGIN
    IF p_job.status = 'blocked' THEN
        RETURN jsonb_build_object('key', p_job.limit_key, 'ahead', pgqueue_why_place_v1(p_job, most), 'first', (
            SELECT job.id FROM pgqueue_job_live AS job
            WHERE job.limit_key = p_job.limit_key AND job.queue_name = p_job.queue_name AND job.wait_position IS NOT NULL
                AND job.status IN ('pending', 'retry', 'blocked')
            ORDER BY job.priority DESC, job.wait_position LIMIT 1));
    END IF;
    paused := ARRAY(
        SELECT pause.name FROM pgqueue_pause AS pause
        WHERE pause.kind = 'queue' AND (pause.until IS NULL OR pause.until > p_now));
    FOR served IN
        SELECT one.queues, one.excluded FROM unnest(p_queues, p_excluded) AS one (queues, excluded)
        ORDER BY one.queues = '[]'  -- those that serve few queues first: they are soon counted
    LOOP
        EXIT WHEN higher = 0;
        higher := pgqueue_why_higher_v1(p_job.priority, p_now, served.queues, served.excluded, paused, higher);
    END LOOP;
    IF p_job.group_key IS NULL THEN
        same := pgqueue_why_earlier_v1(p_job, p_now, most - higher);
    ELSE
        SELECT count(*) INTO same FROM (
            SELECT FROM pgqueue_job_live AS job
            WHERE job.status IN ('pending', 'retry') AND job.group_key = p_job.group_key
                AND job.queue_name = p_job.queue_name AND job.priority = p_job.priority
                AND (job.run_after, job.id) < (p_job.run_after, p_job.id)
            LIMIT most - higher
        ) AS part;
        groups := (
            SELECT count(*) FROM pgqueue_groups_after_v1(p_job.queue_name, p_job.priority, '', 101) AS other
            WHERE other.group_key <> p_job.group_key AND other.run_after <= p_now);
    END IF;
    RETURN jsonb_build_object(
        'ahead', higher + same, 'higher', higher, 'priority', p_job.priority, 'group', p_job.group_key, 'groups', groups);
END $$;
