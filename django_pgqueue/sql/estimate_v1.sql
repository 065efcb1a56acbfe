-- Return how many live jobs meet a condition, as the planner estimates it from the last ANALYZE of the leaf. This
-- takes as long as planning, whatever the backlog.
CREATE FUNCTION pgqueue_estimate_v1(p_condition text) RETURNS double precision
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) SELECT FROM pgqueue_job_live WHERE ' || p_condition INTO plan;
    RETURN plan #>> '{0,Plan,Plan Rows}';
END $$;
