-- A round of maintenance over at most p_limit jobs that wait for others, after the job p_after: let those run that wait for
-- nothing any more, and cancel those of which a parent was deleted. Returns the last job that was looked at (NULL: there
-- are no more), how many it looked at, and how many edges and jobs it has settled.
--
-- This is for what was left to maintenance: children after the first 1,000 of a parent, and children that another session had locked.
-- And for jobs that were deleted by hand. The end of a parent whose children were left is noted at one of its edges, and
-- counts for all of them: its row may be gone because its history is off or its retention has passed.
CREATE FUNCTION pgqueue_repair_edges_v1(
    p_after bigint, p_limit integer, OUT looked integer, OUT reached bigint, OUT settled integer
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    children bigint[];
    free bigint[];
    late pgqueue_ended_v1[];
BEGIN
    looked := 0;
    settled := 0;
    IF NOT pgqueue_on_duty_v1('edges') THEN
        RETURN;
    END IF;
    SELECT array_agg(ROW(edge.parent_id, edge.overdue, 2, NULL)::pgqueue_ended_v1) INTO late
    FROM (
        SELECT DISTINCT ON (one.parent_id) one.parent_id, one.overdue FROM pgqueue_edge AS one
        WHERE one.overdue IS NOT NULL ORDER BY one.parent_id LIMIT 100
    ) AS edge;
    IF late IS NOT NULL THEN
        -- A parent that lives was retried: what still waits for it waits for its next end.
        UPDATE pgqueue_edge AS edge SET overdue = NULL
        FROM unnest(late) AS parent
        WHERE edge.parent_id = parent.id AND edge.overdue IS NOT NULL AND pgqueue_parent_state_v1(parent.id) = 'live';
        late := ARRAY(SELECT parent FROM unnest(late) AS parent WHERE pgqueue_parent_state_v1(parent.id) <> 'live');
        PERFORM pgqueue_settle_v1(late);
        settled := cardinality(late);
    END IF;

    SELECT count(*), CASE WHEN count(*) = p_limit THEN max(page.id) END, array_agg(page.id)
    INTO looked, reached, children
    FROM (
        SELECT job.id FROM pgqueue_job_live AS job
        WHERE job.status = 'blocked' AND starts_with(job.waiting_reason, 'waits for job') AND job.id > p_after
        ORDER BY job.id LIMIT p_limit
    ) AS page;
    IF children IS NULL THEN
        RETURN;
    END IF;
    late := ARRAY(
        SELECT ROW(parent.id, parent.state, 2, NULL)::pgqueue_ended_v1
        FROM (
            SELECT over.id, coalesce(nullif(pgqueue_parent_state_v1(over.id), 'gone'), (
                    SELECT min(noted.overdue) FROM pgqueue_edge AS noted
                    WHERE noted.parent_id = over.id AND noted.overdue IS NOT NULL), 'gone') AS state, over.only_holds
            FROM (
                SELECT edge.parent_id AS id, bool_and(edge.if_failed = 'hold') AS only_holds FROM pgqueue_edge AS edge
                WHERE edge.child_id = ANY (children) AND edge.overdue IS NULL GROUP BY edge.parent_id
            ) AS over
            OFFSET 0
        ) AS parent
        WHERE parent.state NOT IN ('live', 'failed') OR parent.state = 'failed' AND NOT parent.only_holds);
    IF late <> '{}' THEN
        PERFORM pgqueue_settle_v1(late);
    END IF;
    free := ARRAY(
        SELECT child.id FROM unnest(children) AS child (id)
        WHERE (
            SELECT edge.parent_id FROM pgqueue_edge AS edge WHERE edge.child_id = child.id
            ORDER BY -edge.parent_id LIMIT 1) IS NULL);
    settled := settled + cardinality(late) + pgqueue_unblock_v1(free);
END $$;
