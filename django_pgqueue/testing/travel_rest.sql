-- Move the times of everything else into the past. A run is unique, and each takes the time that another one may have
-- had, so they are deleted and inserted again: the ORDER BY lets all be deleted first.
UPDATE pgqueue_worker SET started_at = started_at - %(by)s::interval, heartbeat_at = heartbeat_at - %(by)s::interval;
UPDATE pgqueue_step SET wake_at = wake_at - %(by)s::interval, finished_at = finished_at - %(by)s::interval;
UPDATE pgqueue_progress SET at = at - %(by)s::interval;
UPDATE pgqueue_batch SET
    created_at = created_at - %(by)s::interval, cancel_requested_at = cancel_requested_at - %(by)s::interval,
    finished_at = finished_at - %(by)s::interval;
UPDATE pgqueue_window SET until = until - %(by)s::interval;
UPDATE pgqueue_rate SET tat = tat - %(by)s::interval;
UPDATE pgqueue_pause SET paused_at = paused_at - %(by)s::interval, until = until - %(by)s::interval;
UPDATE pgqueue_received SET received_at = received_at - %(by)s::interval, asked_at = asked_at - %(by)s::interval;
UPDATE pgqueue_ring SET since = since - %(by)s::interval;
UPDATE pgqueue_schedule SET
    paused_at = paused_at - %(by)s::interval, retired_at = retired_at - %(by)s::interval,
    next_run_at = next_run_at - %(by)s::interval, last_run_at = last_run_at - %(by)s::interval,
    since = since - %(by)s::interval, created_at = created_at - %(by)s::interval,
    updated_at = updated_at - %(by)s::interval,
    owed = (
        SELECT jsonb_agg(period || jsonb_build_object(
            'since', (period ->> 'since')::bigint - (extract(epoch FROM %(by)s::interval) * 1000000)::bigint,
            'until', (period ->> 'until')::bigint - (extract(epoch FROM %(by)s::interval) * 1000000)::bigint))
        FROM jsonb_array_elements(owed) AS period);
WITH gone AS (DELETE FROM pgqueue_schedule_run RETURNING *)
INSERT INTO pgqueue_schedule_run (id, schedule, run_at, job_id, outcome)
SELECT gone.id, gone.schedule, gone.run_at - %(by)s::interval, gone.job_id, gone.outcome FROM gone ORDER BY gone.run_at;
