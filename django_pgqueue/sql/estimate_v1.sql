-- Return how many live jobs of a queue meet a condition, as the planner estimates it from the last ANALYZE of the leaf. This
-- takes as long as planning, whatever the backlog.
CREATE FUNCTION pgqueue_estimate_v1(p_queue_name text, p_condition text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE format(
        'EXPLAIN (FORMAT JSON) SELECT FROM pgqueue_job_live WHERE queue_name = %L AND %s', p_queue_name, p_condition
    ) INTO plan;
    RETURN (plan #>> '{0,Plan,Plan Rows}')::bigint;
END $$;
