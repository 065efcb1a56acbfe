-- After roles_functions.sql.
-- Without SECURITY DEFINER, no one has run the command. A function may still have been granted without it.
SELECT pg_get_userbyid(given.grantee), bool_or(routine.stem = ANY (%(worker_only)s))
FROM place CROSS JOIN routine CROSS JOIN LATERAL aclexplode(routine.rights) AS given
WHERE (routine.stem = ANY (%(called)s) AND routine.is_definer OR routine.stem = ANY (%(worker_only)s))
    AND given.grantee NOT IN (0, place.owner)
    AND EXISTS (SELECT FROM routine AS made WHERE made.is_definer AND made.stem = ANY (%(called)s))
GROUP BY given.grantee ORDER BY 1
