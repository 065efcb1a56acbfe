(
    SELECT coalesce(bool_or(policy.polpermissive), false) AND bool_and(policy.polpermissive)
    FROM pg_policy AS policy
    WHERE policy.polrelid = {table} AND (NOT policy.polpermissive OR policy.polcmd = '*'
        AND pg_get_expr(policy.polqual, policy.polrelid) = 'true' AND EXISTS (
            SELECT FROM unnest(policy.polroles) AS role (id)
            WHERE CASE role.id WHEN 0 THEN true ELSE pg_has_role(role.id, 'USAGE') END))
)
