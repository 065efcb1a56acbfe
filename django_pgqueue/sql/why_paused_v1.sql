-- Which pause holds a job (why.sql): that of everything, that of its queue, then that of its task. A job that was put
-- aside for a pause that has ended is let go in a moment, by a worker or by maintenance.
CREATE FUNCTION pgqueue_why_paused_v1(p_job pgqueue_job_live, OUT code text, OUT facts jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    SELECT 'paused', jsonb_build_object(
        'pause', pause.id, 'kind', pause.kind, 'name', nullif(pause.name, ''), 'author', nullif(pause.author, ''),
        'reason', nullif(pause.reason, ''), 'since', pause.paused_at, 'until', pause.until)
    INTO code, facts FROM pgqueue_pause AS pause
    WHERE (pause.until IS NULL OR pause.until > clock_timestamp()) AND CASE pause.kind
        WHEN 'all' THEN true WHEN 'queue' THEN pause.name = p_job.queue_name ELSE pause.name = p_job.task_path END
    ORDER BY array_position('{all,queue,task}', pause.kind::text) LIMIT 1;
    IF NOT FOUND AND p_job.status = 'blocked' AND starts_with(p_job.waiting_reason, 'paused') THEN
        code := 'pause_over';
        facts := '{}';
    END IF;
END $$;
