SELECT strays.jobs, strays.notable, unpaused
FROM _pgqueue_recover(
    NULL, NULL, NULL, false, 'its worker was lost', %(crash_limit)s, %(batch)s, %(keep_errors)s
) AS strays, _pgqueue_unpause(%(batch)s) AS unpaused
