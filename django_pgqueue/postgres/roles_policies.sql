SELECT format('%%I.%%I', place.nspname, leaf.relname), leaf.relrowsecurity,
    ARRAY(SELECT DISTINCT pg_get_userbyid(role)::text FROM pg_policy, unnest(polroles) AS role
        WHERE polrelid = leaf.oid AND polname = 'pgqueue_own'),
    ARRAY(SELECT DISTINCT pg_get_userbyid(role)::text FROM pg_policy, unnest(polroles) AS role
        WHERE polrelid = leaf.oid AND polname = 'pgqueue_all')
FROM pg_class AS leaf JOIN pg_namespace AS place ON place.oid = leaf.relnamespace
WHERE leaf.oid = to_regclass('pgqueue_job')
    OR leaf.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('pgqueue_job'))
ORDER BY leaf.relkind = 'r', leaf.relname
