-- Lock and return the jobs that a claim by SQL looks at: those of the highest priorities first, the queues of one
-- priority in random order, and each range by time. Rows that others have locked are skipped.
--
-- A worker in Python keeps a mark for each range. This has none: pgqueue_first_due_v1 reads each range from its start,
-- and the pick continues at the job that it has found, so that the entries of deleted jobs are passed only once. The
-- upper bound is a variable: with clock_timestamp(), it would be no condition of the index.
--
-- Of the jobs with a group, one of each is taken in turn. p_after is the group whose turn it was last.
CREATE FUNCTION pgqueue_pick_v1(
    p_queues text[],  -- NULL: all except p_except
    p_except text[],
    p_rooms jsonb,    -- how many jobs may start in the limited queues; NULL: there are none
    p_limit integer,
    p_after text,
    OUT picked bigint[], OUT last_group text
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    range record;
    now timestamptz := clock_timestamp();
    -- A finish in the same transaction has released these (release_v1.sql). They keep their place: they come first.
    released bigint[] := coalesce(string_to_array(nullif(current_setting('pgqueue.released', true), ''), ','), '{}');
    free integer := least(p_limit, (p_rooms ->> '*')::integer);
    room integer;
    found bigint[];
BEGIN
    picked := '{}';
    last_group := p_after;
    FOR range IN
        SELECT first.* FROM pgqueue_first_due_v1(p_queues, p_except, '{}', '{}', '{}', '{}', '{}') AS first
        WHERE first.run_after <= now ORDER BY first.priority DESC, random()
    LOOP
        room := least(free, (p_rooms ->> range.queue_name)::integer);
        CONTINUE WHEN room < 1;
        found := '{}';
        IF released <> '{}' THEN
            found := ARRAY(
                SELECT job.id FROM pgqueue_job_live AS job
                WHERE job.id = ANY (released) AND job.status IN ('pending', 'retry')
                    AND job.queue_name = range.queue_name AND job.priority = range.priority
                    AND job.is_grouped = (range.group_key IS NOT NULL) AND job.id <> ALL (picked)
                ORDER BY job.wait_position LIMIT room FOR NO KEY UPDATE SKIP LOCKED);
        END IF;
        IF range.group_key IS NULL THEN
            found := found || ARRAY(
                SELECT job.id FROM pgqueue_job_live AS job
                WHERE job.status IN ('pending', 'retry') AND job.queue_name = range.queue_name
                    AND NOT job.is_grouped AND job.priority = range.priority AND job.run_after <= now
                    AND (job.run_after, job.id) >= (range.run_after, range.id) AND job.id <> ALL (found)
                ORDER BY job.run_after, job.id LIMIT room - cardinality(found) FOR NO KEY UPDATE SKIP LOCKED);
        ELSIF room > cardinality(found) THEN
            SELECT found || turn.picked, turn.last_group INTO found, last_group
            FROM pgqueue_pick_groups_v1(
                range.queue_name, range.priority, last_group, room - cardinality(found), now) AS turn;
        END IF;
        picked := picked || found;
        free := free - cardinality(found);
        IF p_rooms ? range.queue_name THEN
            p_rooms := p_rooms || jsonb_build_object(range.queue_name, room - cardinality(found));
        END IF;
        EXIT WHEN free < 1;
    END LOOP;
END $$;
