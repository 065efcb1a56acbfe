-- What a job waits for that was enqueued after others (why.sql). What needs help comes first: a parent that
-- has failed, then a batch that was not closed. If all parents have finished, maintenance still has to tell the job so.
CREATE FUNCTION pgqueue_why_after_v1(p_id bigint, OUT code text, OUT facts jsonb)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE min(parent.rank)
            WHEN 1 THEN 'after_failed' WHEN 2 THEN 'after_open_batch' WHEN 3 THEN 'after' ELSE 'after_over' END,
        jsonb_build_object('count', count(*), 'parents', coalesce(jsonb_agg(jsonb_build_object(
            'id', parent.parent_id, 'is_batch', parent.is_batch, 'name', nullif(parent.name, ''), 'state', parent.state)
            ORDER BY parent.rank, parent.parent_id) FILTER (WHERE parent.nth <= 5), '[]'))
    FROM (
        SELECT ranked.*, row_number() OVER (ORDER BY ranked.rank, ranked.parent_id) AS nth
        FROM (
            SELECT waits.*, CASE waits.state
                WHEN 'failed' THEN CASE waits.if_failed WHEN 'hold' THEN 1 ELSE 4 END
                WHEN 'open' THEN 2 WHEN 'done' THEN 4 WHEN 'cancelled' THEN 4 WHEN 'gone' THEN 4 ELSE 3 END AS rank
            FROM pgqueue_parents(p_id) AS waits
        ) AS ranked
    ) AS parent
$$;
