-- Race: another worker may declare such a limit at this moment, in another module. It holds the row, so this waits for
-- it, and then leaves that row alone. Both lock rows in the order of their names.
UPDATE pgqueue_limit AS setting SET declared_concurrency = NULL, declared_rate = NULL,
    declared_per = NULL, declared_burst = NULL, declared_by = ''
WHERE setting.name = ANY (ARRAY(
    SELECT known.name FROM pgqueue_limit AS known
    JOIN unnest(%s::text[], %s::text[]) AS gone (name, module)
        ON gone.name = known.name AND gone.module = known.declared_by
    ORDER BY known.name FOR NO KEY UPDATE OF known
))
RETURNING setting.name
