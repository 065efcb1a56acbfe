-- Whether a text occurs in what the admin shows of a JSON value. Without this, a user could find out a
-- redacted value by searching for one beginning after another.
--
-- "shown" is the column; of positional arguments, those whose parameters are not redacted. A value in
-- which there may be something that is redacted, which is seldom the case, is searched part by part, and any other
-- as one text.
CASE
    WHEN NOT upper({value}::text) LIKE ANY (ARRAY[upper(%(like)s), upper(%(like_json)s)]) THEN false
    WHEN NOT ({has_hidden} OR jsonb_path_exists({value}, %(path)s::jsonpath)) THEN true
    ELSE EXISTS (
        WITH RECURSIVE part(key, value) AS (
            SELECT '', {shown}
            UNION ALL
            SELECT child.key, child.value
            FROM part
            CROSS JOIN LATERAL (
                SELECT
                    pair.key,
                    CASE
                        WHEN lower(
                            regexp_replace(
                                regexp_replace(pair.key, '([a-z0-9])([A-Z])', E'\\1_\\2', 'g'),
                                '([A-Z])([A-Z][a-z])', E'\\1_\\2', 'g'
                            )
                        ) ~ %(names)s AND jsonb_typeof(pair.value) <> 'boolean' THEN 'null'
                        ELSE pair.value
                    END
                FROM jsonb_each(CASE jsonb_typeof(part.value) WHEN 'object' THEN part.value ELSE '{{}}' END) AS pair
                UNION ALL
                SELECT '', element
                FROM jsonb_array_elements(
                    CASE jsonb_typeof(part.value) WHEN 'array' THEN part.value ELSE '[]' END
                ) AS element
            ) AS child
        )
        SELECT FROM part
        WHERE upper(part.key) LIKE upper(%(like)s)
            OR jsonb_typeof(part.value) NOT IN ('array', 'object')
                AND upper(part.value #>> '{{}}') LIKE upper(%(like)s)
    )
END
