-- Whether a text occurs in what the admin shows of a JSON value. Without this, a user could find out a
-- redacted value by searching for one beginning after another.
--
-- "shown" is the column; of positional arguments, those whose parameters are not redacted. A value in
-- which there may be something that is redacted, which is seldom the case, is searched part by part, and any other
-- as one text.
CASE
    WHEN NOT upper({value}::text) LIKE ANY (ARRAY[upper(%(like)s), upper(%(like_json)s)]) THEN false
    WHEN NOT ({has_hidden} OR jsonb_path_exists({value}, %(path)s::jsonpath)) THEN true
    ELSE _pgqueue_shows({shown}, %(like)s, %(names)s)
END
