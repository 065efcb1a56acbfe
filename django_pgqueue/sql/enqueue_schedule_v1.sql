-- Enqueue one job of a schedule now, whatever its timing says. Return its id and the outcome, as pgqueue_enqueue_v1
-- does: the id is that of another job, if that one has the unique key. The runs of the schedule stay as they are.
--
-- Race: a round may be firing the schedule at this moment. This waits for its lock, so that neither loses the job of
-- the other from live_jobs. The moment has microseconds, which a run never has, so it is never that of a run.
CREATE FUNCTION pgqueue_enqueue_schedule_v1(p_name text, OUT id bigint, OUT outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    moment timestamptz;
BEGIN
    PERFORM FROM pgqueue_schedule AS schedule WHERE schedule.name = p_name FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pgqueue: there is no schedule %', quote_literal(p_name)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    moment := clock_timestamp();
    IF moment = date_trunc('second', moment) THEN
        moment := moment + interval '1 microsecond';
    END IF;
    INSERT INTO pgqueue_schedule_run (schedule, run_at, outcome) VALUES (p_name, moment, 'manual');
    SELECT done.ids[1], coalesce(done.outcomes[1], 'created') INTO id, outcome
    FROM pgqueue_enqueue_runs_v1(ARRAY[p_name], ARRAY[moment]) AS done;
END $$;
