-- Let at most p_limit jobs continue that wait for a pause of their task that is over: it was resumed, its end has
-- passed, or it was deleted by hand. Workers call this when a pause ends, and maintenance repeats it, so no job stays behind,
-- however quickly a task is paused and resumed. Returns how many jobs continue: p_limit if there may be more, and NULL
-- if another session is doing this.
--
-- All jobs of one call are due at the same moment, so they run in the order of their ids. A job whose time was edited
-- while it waited keeps a later time.
CREATE FUNCTION pgqueue_unpause_v1(p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    task text := '';
    now timestamptz;
    batch integer;
    freed integer := 0;
BEGIN
    -- Two at once would be correct, too, but their jobs would be mixed.
    IF NOT pgqueue_on_duty_v1('unpause') THEN
        RETURN NULL;
    END IF;
    -- Race: a report that is putting a job aside holds the row of the pause. Then the next call deletes it, and finds
    -- that job.
    DELETE FROM pgqueue_pause AS pause WHERE pause.id = ANY (ARRAY(
        SELECT over.id FROM pgqueue_pause AS over WHERE over.until <= clock_timestamp()
        ORDER BY over.id FOR UPDATE SKIP LOCKED));
    LOOP
        SELECT job.task_path INTO task FROM pgqueue_job_live AS job
        WHERE job.status = 'blocked' AND starts_with(job.waiting_reason, 'paused') AND job.task_path > task
        ORDER BY job.task_path, job.id LIMIT 1;
        EXIT WHEN NOT FOUND;
        CONTINUE WHEN EXISTS (
            SELECT FROM pgqueue_pause AS pause
            WHERE pause.kind = 'task' AND pause.name = task
                AND (pause.until IS NULL OR pause.until > clock_timestamp()));
        now := clock_timestamp();
        UPDATE pgqueue_job_live AS job SET
            status = CASE WHEN job.attempts > 0 THEN 'retry' ELSE 'pending' END,
            run_after = greatest(job.run_after, now), waiting_reason = ''
        WHERE job.id = ANY (ARRAY(
            SELECT waiting.id FROM pgqueue_job_live AS waiting
            WHERE waiting.status = 'blocked' AND starts_with(waiting.waiting_reason, 'paused')
                AND waiting.task_path = task
            ORDER BY waiting.id LIMIT p_limit - freed FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS batch = ROW_COUNT;
        freed := freed + batch;
        EXIT WHEN freed >= p_limit;
    END LOOP;
    RETURN freed;
END $$;
