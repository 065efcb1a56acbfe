-- The positional arguments that are shown: arguments of known tasks whose parameter has no redacted name.
(
    SELECT coalesce(jsonb_agg(each.value), '[]')
    FROM jsonb_array_elements(args) WITH ORDINALITY AS each(value, place)
    WHERE %(hidden)s::jsonb ? task_path
        AND NOT (%(hidden)s::jsonb -> task_path -> 'places' @> to_jsonb(each.place - 1))
        AND each.place - 1 < coalesce((%(hidden)s::jsonb -> task_path ->> 'from')::bigint, 2147483647)
)
