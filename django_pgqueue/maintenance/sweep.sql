-- A single statement (Session.run).
WITH passed AS (
    DELETE FROM pgqueue_schedule_run WHERE id = ANY (ARRAY(
        SELECT passed.id FROM pgqueue_schedule_run AS passed
        JOIN pgqueue_schedule AS schedule ON schedule.name = passed.schedule
        WHERE passed.run_at < statement_timestamp() - %(runs)s AND passed.outcome <> 'waiting'
            AND passed.run_at IS DISTINCT FROM schedule.last_run_at
        ORDER BY passed.run_at LIMIT %(batch)s
    ))
), windows AS (
    DELETE FROM pgqueue_window WHERE unique_key = ANY (ARRAY(
        SELECT ended.unique_key FROM pgqueue_window AS ended WHERE ended.until <= statement_timestamp()
        ORDER BY ended.until LIMIT %(batch)s FOR UPDATE SKIP LOCKED
    )) RETURNING 1
), rates AS (
    -- A rate whose time has passed allows its whole burst, as if it had never been used.
    DELETE FROM pgqueue_rate WHERE key = ANY (ARRAY(
        SELECT unused.key FROM pgqueue_rate AS unused
        WHERE unused.tat < statement_timestamp() - interval '1 minute'
        LIMIT %(batch)s FOR UPDATE SKIP LOCKED
    )) RETURNING 1
), received AS (
    DELETE FROM pgqueue_received WHERE (id, token) IN (
        SELECT old.id, old.token FROM pgqueue_received AS old
        WHERE old.received_at < statement_timestamp() - %(received)s
        ORDER BY old.received_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED
    ) RETURNING 1
)
SELECT greatest(
    swept + (SELECT count(*) FROM windows), unpaused, (SELECT count(*) FROM rates), (SELECT count(*) FROM received),
    2 * payloads.deleted, rolled, forgotten, folded
), strays.jobs, strays.notable, to_jsonb(payloads.problems)::text,
    to_jsonb(payloads.strays)::text
FROM _pgqueue_sweep(%(batch)s) AS swept, _pgqueue_unpause(%(batch)s) AS unpaused,
    _pgqueue_sweep_payloads(%(batch)s) AS payloads (deleted, problems, strays),
    _pgqueue_roll_up(%(batch)s) AS rolled,
    _pgqueue_fold_failures(%(groups)s, %(batch)s) AS folded,
    _pgqueue_forget_figures(%(statistics)s, %(groups)s, %(batch)s) AS forgotten,
    _pgqueue_recover(
        NULL, NULL, NULL, false, 'its worker was lost', %(crash_limit)s, %(batch)s, %(keep_errors)s) AS strays
